// SPDX-License-Identifier: Apache-2.0
// `gpuloom drain` with a real scheduler on a bare machine; with an agent: tests/integration/agent_standing_test.cc.
#include "agent/run/drain.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "agent/node/gpu_standing.h"
#include "agent/run/testing/run_fixture.h"
#include "agent/testing/read_only.h"

namespace gpuloom::run {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using Json = nlohmann::json;

class DrainTest : public GpuloomRun {
 protected:
  Answer Drain(const DrainCommand& command) {
    return run::Drain(command, [this](const std::string& line) { printed_ += line + "\n"; });
  }
  // As the agent does; before a pod starts nobody knows whose the slots are.
  void WriteRecord(const std::string& gpu, const std::string& pod) const {
    fs::create_directories(state_ / "records");
    std::ofstream(state_ / "records" / (gpu + pod + ".yaml"))
        << "name: \"" << gpu << pod << "\"\ngpu: \"" << gpu << "\"\ndevices: [\"a\", \"b\"]\n"
        << (pod.empty() ? "" : "binding: {namespace: team-a, container: main, pod: " + pod + "}\n");
  }
  DrainCommand Command() const {
    DrainCommand command;
    command.state_dir = state_;
    return command;
  }

  std::string printed_;  // while it waited
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
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, one)), "");
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, two)), "drained by operator");

  command.gpu = "GPU-3";
  const Answer unknown = Drain(command);
  EXPECT_EQ(unknown.exit_status, kNotGood);
  EXPECT_THAT(unknown.trouble, HasSubstr("no GPU GPU-3 is here; these are: " + one + ", " + two));
  command.gpu.clear();
  EXPECT_EQ(Json::parse(Drain(command).text)["gpus"].size(), 2u);
}

// Neither a scheduler that is gone nor an agent that is knows that they have ended.
TEST_F(DrainTest, WhoHoldsSlotsIsWaitedForWithoutASchedulerToo) {
  const std::string one = "GPU-11111111-0000-0000-0000-000000000000";
  const std::string two = "GPU-22222222-0000-0000-0000-000000000000";
  for (const std::string& uuid : {one, two}) fs::create_directories(FolderOfGpu(state_, uuid));
  std::ofstream(state_ / "agent.lock") << "1\n";
  WriteRecord(one, "train-7");
  WriteRecord(one, "");
  DrainCommand command = Command();
  command.wait = true;
  command.timeout = milliseconds(1);
  const Answer waited = Drain(command);
  EXPECT_EQ(waited.exit_status, kPartly) << waited.text;
  EXPECT_THAT(waited.text, ContainsRegex("team-a +train-7 +main +" + one + " +2 +- +not served\n"));
  EXPECT_THAT(waited.text, ContainsRegex("- +- +- +" + one + " +2 +- +not started\n"));
  EXPECT_THAT(waited.trouble, AllOf(HasSubstr("no scheduler runs for " + one),
                                    HasSubstr("no agent is in charge, so slots of pods that have "
                                              "ended stay taken"),
                                    HasSubstr("2 tenants are still there")));
  // Also while it waits, once for each change.
  EXPECT_THAT(printed_, StartsWith("waits for pods that hold slots: a pod that has not started, "
                                   "team-a/train-7/main; "));
  EXPECT_EQ(std::ranges::count(printed_, '\n'), 1) << printed_;
  command.format = Format::kJson;
  const Json gpus = Json::parse(Drain(command).text)["gpus"];
  EXPECT_EQ(gpus[0]["tenants"][1]["pod"], "train-7");
  EXPECT_EQ(gpus[0]["tenants"][1]["processes"], nullptr);
  EXPECT_EQ(gpus[1]["tenants"], Json::array());
  command.format = Format::kTable;
  // The other one is free, whatever its scheduler.
  command.gpu = two;
  command.timeout.reset();
  EXPECT_EQ(Drain(command).exit_status, kGood);
  command.gpu = one;
  printed_.clear();
  std::thread ended([&] {
    EXPECT_TRUE(Within(seconds(60), [&] { return Read(state_ / "ended") == "yes"; }));
    fs::remove(state_ / "records" / (one + ".yaml"));
    fs::remove(state_ / "records" / (one + "train-7.yaml"));
  });
  const Answer done = run::Drain(command, [this](const std::string& line) {
    printed_ += line + "\n";
    std::ofstream(state_ / "ended") << "yes";
  });
  ended.join();
  EXPECT_EQ(done.exit_status, kGood) << done.trouble;
  EXPECT_THAT(done.text, HasSubstr("nobody is there any more"));
}

TEST_F(DrainTest, WhenItIsNotKnownWhoHoldsSlotsNobodyIsToldThatTheyAreFree) {
  const std::string gpu = "GPU-11111111-0000-0000-0000-000000000000";
  fs::create_directories(FolderOfGpu(state_, gpu));
  DrainCommand command = Command();
  command.wait = true;
  command.timeout = milliseconds(1);
  command.format = Format::kJson;
  const auto is_unknown = [&](const std::string& why) {
    const Answer answer = Drain(command);
    EXPECT_EQ(answer.exit_status, kPartly);
    EXPECT_THAT(answer.trouble, HasSubstr("who holds slots of " + gpu + " is not known: " + why));
    EXPECT_EQ(Json::parse(answer.text)["gpus"][0]["tenants"], nullptr);
  };
  WriteRecord(gpu, "train-7");
  std::ofstream(state_ / "records" / (gpu + "train-7.yaml")) << "format: 7\n";
  is_unknown((state_ / "records").string());
  fs::remove_all(state_ / "records");
  GpuStanding standing;
  standing.held = 2;
  std::ofstream(state_ / "agent.lock") << "1\n";
  std::ofstream(StandingPath(FolderOfGpu(state_, gpu))) << FormatStanding(standing);
  is_unknown("the agent has last said that 2 slots are held");
  command.wait = false;
  EXPECT_EQ(Drain(command).exit_status, kNotGood);
  // With records that name somebody it is known.
  WriteRecord(gpu, "train-7");
  EXPECT_EQ(Drain(command).exit_status, kGood);
}

TEST_F(DrainTest, NobodyWaitsForAGpuThatCouldNotBeClosed) {
  const std::string gpu = "GPU-11111111-0000-0000-0000-000000000000";
  const std::string folder = FolderOfGpu(state_, gpu);
  fs::create_directories(folder);
  WriteRecord(gpu, "train-7");
  const pid_t child = fork();
  if (child == 0) {
    constexpr int kNoMounts = 77;
    if (!MakeReadOnly(folder)) _exit(kNoMounts);
    DrainCommand command = Command();
    command.wait = true;
    const Answer answer = Drain(command);
    const bool is_said = answer.trouble.find("drained.json") != answer.trouble.npos &&
                         answer.trouble.find("Read-only file system") != answer.trouble.npos &&
                         answer.text.find(gpu + " is open to everybody") != answer.text.npos &&
                         printed_.empty();
    if (!is_said) fputs((answer.text + answer.trouble).c_str(), stderr);
    _exit(is_said ? answer.exit_status : 78);
  }
  ASSERT_GT(child, 0);
  const int status = Wait(child);
  if (status == 77) GTEST_SKIP() << "this machine lets no process have mounts of its own";
  EXPECT_EQ(status, kNotGood);
}

// Those of softgpu differ only in their ends.
TEST_F(DrainTest, ABeginningThatSeveralGpusHaveIsRefused) {
  const std::string one = "GPU-6770756c-6f6f-6d20-736f-667467707500";
  const std::string two = "GPU-6770756c-6f6f-6d20-736f-667467707501";
  for (const std::string& uuid : {one, two}) fs::create_directories(FolderOfGpu(state_, uuid));
  DrainCommand command = Command();
  command.gpu = "GPU-6770756c";
  const Answer answer = Drain(command);
  EXPECT_EQ(answer.exit_status, kNotGood);
  EXPECT_THAT(answer.trouble, HasSubstr("GPU-6770756c may be any of these, and nothing was "
                                        "changed: " +
                                        one + ", " + two));
  for (const std::string& uuid : {one, two}) {
    EXPECT_EQ(DrainReason(FolderOfGpu(state_, uuid)), "");
  }
  command.gpu = two;
  EXPECT_EQ(Drain(command).exit_status, kGood);
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, one)), "");
  EXPECT_EQ(DrainReason(FolderOfGpu(state_, two)), "drained by operator");
}

TEST_F(DrainTest, ANodeWithoutAGpuIsDrained) {
  fs::create_directories(state_);
  std::ofstream(state_ / "agent.lock") << "1\n";
  DrainCommand command = Command();
  command.wait = true;
  command.format = Format::kJson;
  const Answer answer = Drain(command);
  EXPECT_EQ(answer.exit_status, kGood);
  EXPECT_EQ(answer.trouble, "gpuloom: this node has no GPU to share\n");
  EXPECT_EQ(Json::parse(answer.text), Json({{"gpus", Json::array()}}));
  command.gpu = "GPU-11111111";
  EXPECT_EQ(Drain(command).exit_status, kNotGood);
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
