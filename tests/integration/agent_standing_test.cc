// SPDX-License-Identifier: Apache-2.0
// What a node goes on promising, and to whom it gives nothing: other numbers of slots, drained and sick GPUs. The agent
// between the kubelet stand-in and real schedulers on software GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kMiB = uint64_t{1} << 20;

class AgentStanding : public ::testing::Test {
 protected:
  void Start(size_t devices) {
    ASSERT_TRUE(node_.kubelet().Start().ok());
    StartAgent(devices);
  }
  void StartAgent(size_t devices) {
    std::vector<std::string> arguments = {"--grace-seconds", "0", "--missing-seconds", "3"};
    arguments.insert(arguments.end(), more_arguments_.begin(), more_arguments_.end());
    node_.StartAgent(arguments);
    const absl::Status status = node_.kubelet().WaitForDevices(devices, kPatience);
    ASSERT_TRUE(status.ok()) << status << "\n" << node_.AgentLog();
  }
  absl::StatusOr<FakeContainer> TryRun(const std::string& name) {
    const auto pod = node_.kubelet().Admit({"a", name, {{"main", 1, false}}});
    if (!pod.ok()) return pod.status();
    return node_.kubelet().PrepareStart("a", name, "main");
  }
  FakeContainer Run(const std::string& name) {
    const auto container = TryRun(name);
    EXPECT_TRUE(container.ok()) << container.status() << "\n" << node_.AgentLog();
    return container.ok() ? *container : FakeContainer{};
  }
  bool WaitForDevices(size_t devices) {
    return node_.WaitFor([&] { return node_.kubelet().healthy_devices() == devices; });
  }
  uint64_t Quota(const FakeContainer& container) {
    const auto state = AskScheduler(container);
    return state.has_value() ? state->memory_quota_bytes : 0;
  }

  AgentNode node_{1, 10};
  std::vector<std::string> more_arguments_;
};

// One that was killed in the middle of writing: of what is said of a GPU, too.
TEST_F(AgentStanding, TheNextAgentRemovesWhatOneHasNotFinished) {
  Start(10);
  node_.KillAgent(SIGKILL);
  const std::filesystem::path gpus = node_.state_directory() + "/gpus";
  ASSERT_TRUE(std::filesystem::exists(gpus)) << node_.AgentLog();
  const std::filesystem::path left =
      std::filesystem::directory_iterator(gpus)->path() / "standing.json.Abc123.new";
  std::ofstream(left) << "{";
  StartAgent(10);
  EXPECT_TRUE(node_.WaitFor([&] { return !std::filesystem::exists(left); })) << node_.AgentLog();
}

TEST_F(AgentStanding, FewerSlotsLeaveWhatRunsItsMemoryAndGiveWhatIsLeft) {
  Start(10);
  std::vector<FakeContainer> running;
  for (int i = 0; i < 10; ++i) running.push_back(Run("p" + std::to_string(i)));
  const uint64_t tenth = Quota(running[0]);
  ASSERT_GT(tenth, 80 * kMiB);

  node_.KillAgent(SIGKILL);
  node_.SetSlots(5);
  StartAgent(5);
  ASSERT_TRUE(WaitForDevices(5)) << node_.AgentLog();
  for (const FakeContainer& container : running) EXPECT_EQ(Quota(container), tenth);
  EXPECT_TRUE(node_.WaitForLog("10 slots are held, 5 of them beyond")) << node_.AgentLog();

  // The scheduler of each of two slots knows nothing of the kubelet's choice.
  const auto remove = [&](const std::string& slot) {
    for (int i = 0; i < 10; ++i) {
      if (!running[static_cast<size_t>(i)].device_ids.begin()->ends_with("::" + slot)) continue;
      node_.kubelet().RemovePod("a", "p" + std::to_string(i));
    }
  };
  remove("0");
  ASSERT_TRUE(WaitForDevices(4)) << "a slot would be twice as large as what is left\n"
                                 << node_.AgentLog();
  remove("9");
  ASSERT_TRUE(WaitForDevices(5)) << node_.AgentLog();
  const FakeContainer fresh = Run("new");
  EXPECT_GE(Quota(fresh), 2 * tenth - 2 * kMiB);
  EXPECT_LE(Quota(fresh) + 8 * tenth, 896 * kMiB) << "1 GiB less an eighth";
  // And over a further restart.
  node_.KillAgent(SIGTERM);
  StartAgent(5);
  EXPECT_GE(Quota(fresh), 2 * tenth - 2 * kMiB);
  for (int i = 0; i < 10; ++i) {
    const FakeContainer& container = running[static_cast<size_t>(i)];
    const std::string& id = *container.device_ids.begin();
    if (id.ends_with("::0") || id.ends_with("::9")) continue;
    EXPECT_EQ(Quota(container), tenth);
  }
}

TEST_F(AgentStanding, ADrainedNodeTakesNobodyNewAndKeepsWhoIsThere) {
  Start(10);
  const FakeContainer running = Run("old");
  int status = -1;
  const std::string drained = node_.RunGpuloom({"drain", "--reason", "new fans"}, &status);
  EXPECT_EQ(status, 0) << drained;
  EXPECT_THAT(drained, AllOf(HasSubstr("is drained by operator: new fans"), HasSubstr("old"),
                             HasSubstr("1 tenant is still there")));
  ASSERT_TRUE(WaitForDevices(0)) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog("is drained: drained by operator: new fans"));
  EXPECT_EQ(node_.RunAgentProbe("--probe-ready"), "") << "there is nothing to mend";
  EXPECT_FALSE(TryRun("new").ok());
  // The operator asks what was refused; a pod that the kubelet does not even ask about is not in it.
  EXPECT_THAT(node_.RunGpuloom({"refusals"}, &status), HasSubstr("REASON"));
  EXPECT_THAT(node_.RunGpuloom({"tenants"}, &status), AllOf(HasSubstr("SINCE"), HasSubstr("20")));
  EXPECT_THAT(
      node_.RunGpuloom({"version"}, &status),
      AllOf(ContainsRegex("\nagent: [0-9]"), ContainsRegex("\nscheduler of GPU-[^ ]+: [0-9]"),
            ContainsRegex("\nlibgpuloom of 1 container: [0-9]"),
            ContainsRegex("\nlibgpuloom-nvml of 1 container: [0-9]"),
            ContainsRegex("\ngpuloom-trace of 1 container: [0-9]")));
  // A container that was there starts again.
  EXPECT_TRUE(node_.kubelet().PrepareStart("a", "old", "main").ok());

  // It outlives the agent.
  node_.KillAgent(SIGKILL);
  StartAgent(0);
  ASSERT_TRUE(node_.WaitForLog("plugin: registered"));
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), HasSubstr("drained by operator: new fans"));
  EXPECT_EQ(node_.kubelet().healthy_devices(), 0u);
  EXPECT_NE(Quota(running), 0u);

  EXPECT_EQ((node_.RunGpuloom({"drain", "--wait", "--timeout", "1s"}, &status), status), 3);
  node_.kubelet().RemovePod("a", "old");
  const std::string waited = node_.RunGpuloom({"drain", "--wait", "--timeout", "60s"}, &status);
  EXPECT_EQ(status, 0) << waited;
  EXPECT_THAT(waited, HasSubstr("nobody is there any more"));

  EXPECT_THAT(node_.RunGpuloom({"drain", "--undo"}, &status), HasSubstr("is open to everybody"));
  ASSERT_TRUE(WaitForDevices(10)) << node_.AgentLog();
  EXPECT_TRUE(TryRun("new").ok());
}

TEST_F(AgentStanding, KubernetesIsToldWhatBecomesOfGpusAndThePolicy) {
  more_arguments_ = node_.StartApiServer("{}");
  Start(10);
  int status = -1;
  (void)node_.RunGpuloom({"drain", "--reason", "new fans"}, &status);
  const auto is_reported = [&](const std::string& text) {
    return node_.WaitFor([&] { return node_.ApiServerLog().find(text) != std::string::npos; });
  };
  EXPECT_TRUE(is_reported("is drained: drained by operator: new fans")) << node_.AgentLog();
  node_.WritePolicy("defaults: {memory: 7 elephants}");
  EXPECT_TRUE(is_reported("GpuPolicyRefused")) << node_.AgentLog();
  EXPECT_TRUE(is_reported("7 elephants"));
  EXPECT_THAT(node_.ApiServerLog(), HasSubstr("\"kind\": \"Node\", \"name\": \"node-1\""));
}

TEST_F(AgentStanding, AGpuThatHasFallenOffTheBusIsOfferedToNobodyUntilItIsBack) {
  Start(10);
  node_.LoseGpus(true);
  // Its executor does not start.
  (void)Run("first");
  ASSERT_TRUE(WaitForDevices(0)) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog("is sick: cuda: cuInit: CUDA_ERROR_NO_DEVICE")) << node_.AgentLog();
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"), HasSubstr("is sick: cuda: cuInit"));
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), HasSubstr("sick: cuda: cuInit"));
  EXPECT_FALSE(TryRun("second").ok());

  node_.LoseGpus(false);
  ASSERT_TRUE(WaitForDevices(10)) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog("is healthy"));
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }));
  EXPECT_TRUE(TryRun("third").ok());
}

}  // namespace
}  // namespace gpuloom
