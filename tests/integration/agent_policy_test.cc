// SPDX-License-Identifier: Apache-2.0
// A node whose GPUs differ in size: what one of them cannot have or keep to is refused there and said, and costs the other
// nothing. The agent between the kubelet stand-in and real schedulers on software GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kMiB = uint64_t{1} << 20;

class AgentPolicy : public ::testing::Test {
 protected:
  void Start(size_t devices, const std::vector<std::string>& arguments = {}) {
    ASSERT_TRUE(node_.kubelet().Start().ok());
    std::vector<std::string> all = node_.StartApiServer("{}");
    all.insert(all.end(), arguments.begin(), arguments.end());
    node_.StartAgent(all);
    const absl::Status status = node_.kubelet().WaitForDevices(devices, kPatience);
    ASSERT_TRUE(status.ok()) << status << "\n" << node_.AgentLog();
  }
  // By their numbers.
  std::vector<std::string> Gpus() const {
    std::vector<std::string> uuids;
    for (const auto& folder :
         std::filesystem::directory_iterator(node_.state_directory() + "/gpus")) {
      uuids.push_back(folder.path().filename());
    }
    std::ranges::sort(uuids);
    return uuids;
  }
  // As device IDs name it.
  static std::string IdOf(const std::string& uuid, int slot) {
    return "gpu" + uuid.substr(3) + "::" + std::to_string(slot);
  }
  // On the GPU of this number, in one slot of it.
  absl::StatusOr<FakeContainer> TryRun(const std::string& pod_namespace, size_t gpu, int slot) {
    const std::string name = "p" + std::to_string(slot);
    const auto pod = node_.kubelet().AdmitWithDevices({pod_namespace, name, {{"main", 1, false}}},
                                                      {{IdOf(Gpus().at(gpu), slot)}});
    if (!pod.ok()) return pod.status();
    return node_.kubelet().PrepareStart(pod_namespace, name, "main");
  }
  uint64_t Quota(const absl::StatusOr<FakeContainer>& container) {
    EXPECT_TRUE(container.ok()) << container.status() << "\n" << node_.AgentLog();
    const auto state = container.ok() ? AskScheduler(*container) : std::nullopt;
    return state.has_value() ? state->memory_quota_bytes : 0;
  }
  bool IsReported(const std::string& text) {
    return node_.WaitFor([&] { return node_.ApiServerLog().find(text) != std::string::npos; });
  }

  AgentNode node_{2, 10};
};

TEST_F(AgentPolicy, AGpuThatIsTooSmallForTheReserveCostsNoOther) {
  node_.SetMemory("1GiB,512MiB");
  // As the chart runs it: the schedulers in a pod of their own.
  const pid_t schedulers = node_.StartFurtherAgent({"--schedulers", "only", "--reserve", "512MiB"});
  EXPECT_TRUE(node_.WaitFor([&] { return node_.SchedulerPids().size() == 2; }));
  Start(10, {"--schedulers", "adopt", "--reserve", "512MiB"});
  const std::string reason =
      "GPU " + Gpus().at(1) + " has 512MiB, --reserve keeps 512MiB: nothing is left for 10 slots";
  EXPECT_THAT(node_.AgentLog(), HasSubstr(reason));
  EXPECT_TRUE(node_.WaitForLog("is unavailable: " + reason)) << node_.AgentLog();
  EXPECT_TRUE(IsReported("GpuUnavailable"));
  EXPECT_TRUE(IsReported(reason));
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"), HasSubstr(reason));
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), HasSubstr("unavailable: " + reason));

  EXPECT_EQ(Quota(TryRun("a", 0, 0)), 50 * kMiB) << "half of a GiB in ten parts";
  EXPECT_THAT(std::string(TryRun("a", 1, 1).status().message()), HasSubstr(reason));
  EXPECT_EQ(node_.kubelet().healthy_devices(), 10u);

  kill(schedulers, SIGTERM);
  waitpid(schedulers, nullptr, 0);
  // What is no size at all is a mistake of the command line.
  const pid_t mistaken = node_.StartFurtherAgent({"--schedulers", "only", "--reserve", "much"});
  int ended = 0;
  ASSERT_EQ(waitpid(mistaken, &ended, 0), mistaken);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 1);
}

TEST_F(AgentPolicy, ARuleThatOneGpuCannotKeepToIsImpossibleThereAlone) {
  node_.SetMemory("1GiB,2GiB");
  node_.WritePolicy(
      "defaults: {memory: 32MiB}\n"
      "namespaces:\n"
      "  team-large: {gpus: [1], memory: 120MiB}\n");
  Start(20);
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }))
      << "a rule that is for other GPUs is no trouble";
  const auto before = TryRun("team-a", 0, 0);
  EXPECT_EQ(Quota(before), 32 * kMiB);

  node_.WritePolicy(
      "defaults: {memory: 32MiB}\n"
      "namespaces:\n"
      "  team-large: {gpus: [1], memory: 120MiB}\n"
      "  team-a: {memory: 100MiB, weight: 7}\n");
  const std::string reason =
      "policy.yaml:4:20: namespaces.team-a.memory: 10 slots x 100MiB is more than GPU " +
      Gpus().at(0) + " has";
  EXPECT_TRUE(node_.WaitForLog("policy.yaml reloaded")) << node_.AgentLog();
  EXPECT_TRUE(IsReported("GpuPolicyPartly")) << node_.AgentLog();
  EXPECT_TRUE(IsReported(reason));
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.RunAgentProbe("--probe-ready").find(reason) != std::string::npos;
  })) << node_.RunAgentProbe("--probe-ready");
  EXPECT_TRUE(node_.WaitForLog("keeps its 32MiB of memory: ")) << node_.AgentLog();
  EXPECT_EQ(Quota(before), 32 * kMiB);

  // Its pods are refused on that GPU; there and elsewhere everybody else is served.
  EXPECT_THAT(std::string(TryRun("team-a", 0, 1).status().message()),
              AllOf(HasSubstr(reason), HasSubstr("write at most 88MiB")));
  EXPECT_EQ(Quota(TryRun("other", 0, 2)), 32 * kMiB);
  EXPECT_EQ(Quota(TryRun("team-a", 1, 3)), 100 * kMiB);
  EXPECT_EQ(Quota(TryRun("team-large", 1, 4)), 120 * kMiB);
  EXPECT_EQ(node_.kubelet().healthy_devices(), 20u);

  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status),
              HasSubstr("healthy, rules of the policy that are impossible here: 1"));
  EXPECT_THAT(node_.RunGpuloom({"policy", "show", node_.PolicyPath()}, &status),
              AllOf(HasSubstr("# impossible on " + Gpus().at(0)), HasSubstr(reason)));
  EXPECT_EQ(status, 1);

  // It holds over a restart, and ends with the file.
  node_.KillAgent(SIGKILL);
  node_.StartAgent();
  EXPECT_TRUE(
      node_.WaitForLog("pods of namespaces.team-a.memory are refused on GPU " + Gpus().at(0)))
      << node_.AgentLog();
  EXPECT_EQ(Quota(before), 32 * kMiB);
  node_.WritePolicy("defaults: {memory: 32MiB}\nnamespaces: {team-a: {memory: 64MiB}}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }))
      << node_.AgentLog();
  EXPECT_EQ(Quota(before), 64 * kMiB);
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), Not(HasSubstr("impossible")));
}

}  // namespace
}  // namespace gpuloom
