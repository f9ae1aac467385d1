// SPDX-License-Identifier: Apache-2.0
// Suspending and resuming tenants of a real scheduler, executor and software GPU.
#include "agent/run/suspend.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "agent/run/testing/run_fixture.h"
#include "proto/channel/socket.h"
#include "proto/control/testing/recording.h"

namespace gpuloom::run {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

class SuspendTest : public GpuloomRun {
 protected:
  // A tenant whose progress is in the file of this name.
  pid_t Tenant(const std::string& name, const std::string& mode = "count") {
    return Start({GPULOOM_PYTHON, GPULOOM_COUNTING_TENANT, mode, root_ / name, root_ / "stop"});
  }
  struct State {
    std::string pod;
    int count = 0;
  };
  State Progress(const std::string& name) const {
    State state;
    std::istringstream(Read(root_ / name)) >> state.pod >> state.count;
    return state;
  }
  bool Reaches(const std::string& name, int count) {
    return Within(seconds(60), [&] { return Progress(name).count >= count; });
  }
  int Say(const char* command, const std::string& pod, std::vector<std::string> options = {}) {
    std::vector<std::string> arguments = {command, pod, "--state-dir", state_};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return Gpuloom(std::move(arguments));
  }
  std::string PodOf(const std::string& name) const { return "local/" + Progress(name).pod; }
  void Stop() const { std::ofstream(root_ / "stop") << "now"; }
};

TEST_F(SuspendTest, ASuspendedPodStandsStillAndItsNeighbourGoesOn) {
  const pid_t one = Tenant("one"), other = Tenant("other");
  ASSERT_TRUE(Reaches("one", 5) && Reaches("other", 5)) << Errors();
  EXPECT_EQ(Say("suspend", PodOf("one")), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr(PodOf("one") + " is suspended: nothing of it is at a GPU\n"));
  // One kernel that had ended before may be written yet.
  const int held_at = Progress("one").count + 1;
  ASSERT_TRUE(Reaches("other", Progress("other").count + 100));
  EXPECT_LE(Progress("one").count, held_at);

  EXPECT_EQ(Say("resume", PodOf("one")), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr(PodOf("one") + " goes on\n"));
  EXPECT_TRUE(Reaches("one", held_at + 20));
  Stop();
  EXPECT_EQ(Wait(one), 0) << "each result was right: " << Errors();
  EXPECT_EQ(Wait(other), 0) << Errors();
}

TEST_F(SuspendTest, ADocumentSaysHowEachContainerStands) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(Reaches("one", 5)) << Errors();
  SuspendCommand command;
  ASSERT_TRUE(ParseTarget(PodOf("one"), &command));
  command.state_dir = state_;
  command.format = Format::kJson;
  Answer answer = Suspend(command);
  EXPECT_EQ(answer.exit_status, 0) << answer.trouble;
  const Json tenant = {{"namespace", "local"},   {"pod", command.pod},
                       {"container", "python3"}, {"state_dir", state_.string()},
                       {"state", "suspended"},   {"processes", 1},
                       {"processes_held", 1}};
  EXPECT_EQ(Json::parse(answer.text), Json({{"tenants", Json::array({tenant})}}));
  command.suspend = false;
  answer = Suspend(command);
  EXPECT_EQ(answer.exit_status, 0) << answer.trouble;
  const Json resumed = Json::parse(answer.text)["tenants"][0];
  EXPECT_EQ(resumed["state"], "runs");
  EXPECT_EQ(resumed["processes_held"], 0);
  EXPECT_EQ(Say("suspend", PodOf("one"), {"-o", "yaml"}), 0) << Errors();
  EXPECT_THAT(Output(), HasSubstr("    state: suspended\n"));
  EXPECT_EQ(Say("resume", PodOf("one")), 0) << Errors();
  command.pod = "another";
  answer = Suspend(command);
  EXPECT_EQ(answer.exit_status, 1);
  EXPECT_EQ(answer.text, "");
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
}

TEST_F(SuspendTest, ProcessesThatBeginLaterAreSuspendedToo) {
  const std::string go = root_ / "go";
  const std::string late =
      std::string("echo $GPULOOM_SOCKET_DIR > ") + (root_ / "folder").string() + "; while [ ! -e " +
      go + " ]; do sleep 0.02; done; exec " + GPULOOM_PYTHON + " " + GPULOOM_COUNTING_TENANT +
      " count " + (root_ / "one").string() + " " + (root_ / "stop").string();
  const pid_t one = Start({"sh", "-c", late}), other = Tenant("other");
  ASSERT_TRUE(Within(seconds(60), [&] { return Read(root_ / "folder").ends_with("\n"); }));
  std::string folder = Read(root_ / "folder");
  folder.pop_back();
  const std::string pod = "local/" + std::filesystem::path(folder).filename().string();
  EXPECT_EQ(Say("suspend", pod + "/sh"), 0) << Errors();
  std::ofstream(go) << "go";
  ASSERT_TRUE(Reaches("other", 5)) << Errors();
  // Both are there.
  ASSERT_TRUE(Within(seconds(60), [&] {
    const size_t before = Output().size();
    EXPECT_EQ(Gpuloom({"tenants", "-o", "json", "--state-dir", state_}), 0) << Errors();
    const Json tenants = Json::parse(Output().substr(before))["tenants"];
    return std::ranges::count_if(tenants,
                                 [](const Json& tenant) { return tenant["processes"] == 1; }) == 2;
  })) << Output();
  ASSERT_TRUE(Reaches("other", Progress("other").count + 50));
  EXPECT_EQ(Progress("one").count, 0);
  EXPECT_EQ(Say("resume", pod), 0);
  EXPECT_TRUE(Reaches("one", 5));
  Stop();
  EXPECT_EQ(Wait(one), 0) << Errors();
  EXPECT_EQ(Wait(other), 0) << Errors();
}

TEST_F(SuspendTest, AKernelThatRunsIsNamedAndHeldWhenItEnds) {
  const pid_t one = Tenant("one", "spin");
  ASSERT_TRUE(Reaches("one", 1)) << Errors();
  const std::string pod = PodOf("one");
  // Until its kernel is at the device.
  ASSERT_TRUE(Within(seconds(60), [&] {
    if (Say("suspend", pod, {"--timeout", "100ms"}) == 3) return true;
    (void)Say("resume", pod);
    return false;
  }));
  EXPECT_THAT(Errors(), AllOf(HasSubstr("1 of 1 processes of " + pod),
                              HasSubstr("A kernel that runs cannot be interrupted")));
  Stop();
  // With its last kernel the program may end before it is asked about.
  EXPECT_TRUE(Say("suspend", pod, {"--timeout", "1m"}) == 0 ||
              Errors().find("is not known") != std::string::npos)
      << Errors();
  EXPECT_EQ(Wait(one), 0) << Errors();
}

TEST_F(SuspendTest, ASuspendedTenantThatIsKilledIsGone) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(Reaches("one", 5)) << Errors();
  EXPECT_EQ(Say("suspend", PodOf("one")), 0);
  kill(one, SIGTERM);
  EXPECT_EQ(Wait(one), 128 + SIGTERM);
  EXPECT_TRUE(Within(seconds(60), [&] { return !SchedulerRuns(); })) << "it has nothing left";
}

TEST_F(SuspendTest, APodThatIsNotThereIsAnsweredWithThoseThatAre) {
  const pid_t one = Tenant("one");
  ASSERT_TRUE(Reaches("one", 1)) << Errors();
  EXPECT_EQ(Say("suspend", "team-a/train"), 1);
  EXPECT_THAT(Errors(), HasSubstr("gpuloom: team-a/train has no GPU on this node; these have: " +
                                  PodOf("one") + "/python3"));
  EXPECT_EQ(Say("resume", PodOf("one") + "/other"), 1);
  Stop();
  EXPECT_EQ(Wait(one), 0);
}

TEST_F(SuspendTest, WithoutASchedulerItSaysWhereItHasLooked) {
  EXPECT_EQ(Say("suspend", "a/b"), 1);
  EXPECT_THAT(Errors(), HasSubstr("no scheduler is found in " + state_.string()));
  EXPECT_THAT(Errors(), HasSubstr("--state-dir"));
  // Nor behind a socket that nobody serves.
  std::filesystem::create_directories(state_);
  channel::ListenAt((state_ / control::kControlSocketName).c_str()).Reset();
  EXPECT_EQ(Say("suspend", "a/b"), 1);
  EXPECT_THAT(Errors(), HasSubstr("Connection refused"));
}

TEST_F(SuspendTest, AnOlderSchedulerIsNamedAndAskedNothing) {
  std::filesystem::create_directories(state_);
  const control::Recording recording =
      control::ReadRecording(GPULOOM_GOLDEN "/control_3.1/run_3.2.txt");
  control::AllocationState state{};
  for (const control::RecordedMessage& message : recording) {
    if (message.header().type != control::kType<control::AllocationState>) continue;
    std::memcpy(&state, message.bytes.data() + sizeof(control::MessageHeader),
                control::AllocationState::kShortestBytes);
  }
  ASSERT_STREQ(state.pod_namespace, "local");
  const control::RecordedScheduler scheduler(state_, recording);
  EXPECT_EQ(Say("suspend", std::string("local/") + state.pod), 1);
  EXPECT_THAT(Errors(), HasSubstr("the scheduler in " + state_.string() +
                                  " is of an older release, which cannot suspend"));
  EXPECT_THAT(Errors(), HasSubstr("nothing was changed"));
  EXPECT_FALSE(scheduler.was_surprised());
}

TEST(ParseTarget, IsAPodOrOneOfItsContainers) {
  SuspendCommand command;
  EXPECT_TRUE(ParseTarget("team-a/train-7", &command));
  EXPECT_EQ(command.pod_namespace, "team-a");
  EXPECT_EQ(command.pod, "train-7");
  EXPECT_EQ(command.container, "");
  EXPECT_TRUE(ParseTarget("team-a/train-7/main", &command));
  EXPECT_EQ(command.pod, "train-7");
  EXPECT_EQ(command.container, "main");
  for (const char* text :
       {"", "train-7", "/train-7", "team-a/", "team-a//main", "team-a/p/", "a/b/c/d"}) {
    EXPECT_FALSE(ParseTarget(text, &command)) << text;
  }
}

}  // namespace
}  // namespace gpuloom::run
