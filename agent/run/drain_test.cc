// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain` with a real scheduler on a bare machine; with an agent: tests/integration/agent_standing_test.cc.
#include "agent/run/drain.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/node/gpu_standing.h"
#include "agent/run/testing/run_fixture.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Json = nlohmann::json;

class DrainTest : public GpuloomRun {
 protected:
  DrainCommand Command() const {
    DrainCommand command;
    command.state_dir = state_;
    return command;
  }
};

TEST_F(DrainTest, NobodyNewGetsTheGpuAndWhoIsThereIsWaitedFor) {
  const pid_t tenant =
      Start({GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, "count", root_ / "one", root_ / "stop"});
  ASSERT_TRUE(Within(seconds(60), [&] { return Read(root_ / "one").ends_with("\n"); })) << Errors();
  DrainCommand command = Command();
  command.reason = "new fans";
  const Answer drained = Drain(command);
  EXPECT_EQ(drained.exit_status, kGood);
  EXPECT_THAT(drained.text, HasSubstr("is drained by operator: new fans\n"));
  EXPECT_THAT(drained.text, HasSubstr("\nlocal"));
  EXPECT_THAT(drained.trouble, HasSubstr("1 tenant is still there"));

  EXPECT_EQ(Run({"true"}), 125);
  EXPECT_THAT(Errors(), HasSubstr("is drained by operator: new fans; gpuloom drain --undo"));
  // An order outlives whoever gave it, and is not lost by a second one that times out.
  command.wait = true;
  command.timeout = milliseconds(1);
  EXPECT_EQ(Drain(command).exit_status, kPartly);
  EXPECT_EQ(Gpuloom({"gpus", "--state-dir", state_}), 0);
  EXPECT_THAT(Output(), HasSubstr("drained by operator: new fans"));

  std::ofstream(root_ / "stop") << "now";
  command.timeout = seconds(60);
  const Answer waited = Drain(command);
  EXPECT_EQ(waited.exit_status, kGood) << waited.trouble;
  EXPECT_THAT(waited.text, HasSubstr("nobody is there any more"));
  EXPECT_EQ(Wait(tenant), 0);

  command = Command();
  command.undo = true;
  EXPECT_THAT(Drain(command).text, HasSubstr("is open to everybody"));
  EXPECT_EQ(Run({"true"}), 0) << Errors();
}

// A GPU whose scheduler does not start is the first that one drains.
TEST_F(DrainTest, GpusOfAnAgentAreDrainedWithoutTheirSchedulersToo) {
  const std::string one = "GPU-11111111-0000-0000-0000-000000000000";
  const std::string two = "GPU-22222222-0000-0000-0000-000000000000";
  for (const std::string& uuid : {one, two}) fs::create_directories(FolderOfGpu(state_, uuid));
  DrainCommand command = Command();
  command.gpu = "GPU-22222222";
  command.format = Format::kJson;
  const Answer answer = Drain(command);
  EXPECT_EQ(answer.exit_status, kGood) << answer.trouble;
  const Json gpus = Json::parse(answer.text)["gpus"];
  ASSERT_EQ(gpus.size(), 1u);
  EXPECT_EQ(gpus[0]["gpu"], two);
  EXPECT_EQ(gpus[0]["drained"], true);
  EXPECT_EQ(DrainedBecause(FolderOfGpu(state_, one)), "");
  EXPECT_EQ(DrainedBecause(FolderOfGpu(state_, two)), "drained by operator");

  // Who waits is not told that nobody is there by a scheduler that may be about to start again.
  command.wait = true;
  command.timeout = milliseconds(1);
  const Answer waited = Drain(command);
  EXPECT_EQ(waited.exit_status, kPartly);
  EXPECT_THAT(waited.trouble, HasSubstr("who has its slots is not known"));
  command.wait = false;

  command.gpu = "GPU-3";
  const Answer unknown = Drain(command);
  EXPECT_EQ(unknown.exit_status, kNotGood);
  EXPECT_THAT(unknown.trouble, HasSubstr("no GPU GPU-3 is here; these are: " + one + ", " + two));
  command.gpu.clear();
  EXPECT_EQ(Json::parse(Drain(command).text)["gpus"].size(), 2u);
}

TEST_F(DrainTest, WhereNoGpuIsThatIsSaid) {
  DrainCommand command = Command();
  command.state_dir = root_ / "nowhere";
  const Answer answer = Drain(command);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble, HasSubstr("name the agent's state folder with --state-dir"));
}

}  // namespace
}  // namespace gpuloom::run
