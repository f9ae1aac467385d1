// SPDX-License-Identifier: Apache-2.0
// What agents and schedulers that are replaced, killed or started again leave to the pods and to the
// node.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <thread>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::chrono::seconds kPatience{60};

FakePodSpec Pod(const std::string& name) { return {"a", name, {{"main", 1, false}}}; }

void Start(AgentNode* node, const std::vector<std::string>& arguments = {}) {
  ASSERT_TRUE(node->kubelet().Start().ok());
  node->StartAgent(arguments);
  const absl::Status devices = node->kubelet().WaitForDevices(20, kPatience);
  ASSERT_TRUE(devices.ok()) << devices << "\n" << node->AgentLog();
}

FakeContainer RunPod(AgentNode* node, const std::string& name) {
  const auto pod = node->kubelet().Admit(Pod(name));
  EXPECT_TRUE(pod.ok()) << pod.status();
  const auto container = node->kubelet().PrepareStart("a", name, "main");
  EXPECT_TRUE(container.ok()) << container.status() << "\n" << node->AgentLog();
  return container.ok() ? *container : FakeContainer{};
}

int Count(const fs::path& directory) {
  std::error_code error;
  return static_cast<int>(std::distance(fs::directory_iterator(directory, error), {}));
}

// Admits, starts and deletes one pod after the other in a thread of its own.
class PodStream {
 public:
  explicit PodStream(AgentNode* node)
      : node_(node), thread_([this] {
          // Fewer than a scheduler remembers.
          while (!is_ending_ && admitted_ < 900) One();
        }) {}
  ~PodStream() { End(); }
  void End() {
    is_ending_ = true;
    if (thread_.joinable()) thread_.join();
  }
  int admitted() const { return admitted_; }
  // After End: what was refused.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  void One() {
    const std::string name = "p" + std::to_string(admitted_);
    absl::Status status = node_->kubelet().Admit(Pod(name)).status();
    if (status.ok()) {
      // The kubelet tries a start again, an admission never.
      const auto end = std::chrono::steady_clock::now() + kPatience;
      status = node_->kubelet().PrepareStart("a", name, "main").status();
      while (!status.ok() && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        status = node_->kubelet().PrepareStart("a", name, "main").status();
      }
    }
    if (!status.ok()) refusals_.push_back(name + ": " + std::string(status.message()));
    node_->kubelet().RemovePod("a", name);
    ++admitted_;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }

  AgentNode* const node_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<int> admitted_ = 0;
  std::vector<std::string> refusals_;
  std::thread thread_;
};

void ReplaceWithoutLoss(FakeKubelet::Takeover takeover, int replacements, int pods) {
  AgentNode node(2, 10, {}, takeover);
  Start(&node);
  const std::vector<pid_t> schedulers = node.SchedulerPids();
  const FakeContainer before = RunPod(&node, "before");
  PodStream stream(&node);
  for (int i = 0; i < replacements; ++i) {
    const std::string name = "between" + std::to_string(i);
    ASSERT_TRUE(node.kubelet().Admit(Pod(name)).ok());
    ASSERT_TRUE(node.ReplaceAgent()) << node.AgentLog();
    // What the old one allocated, the new one knows.
    const auto started = node.kubelet().PrepareStart("a", name, "main");
    EXPECT_TRUE(started.ok()) << started.status() << "\n" << node.AgentLog();
    node.kubelet().RemovePod("a", name);
  }
  // A minute for each of many.
  EXPECT_TRUE(node.WaitFor([&] { return stream.admitted() >= pods; }, std::chrono::minutes(8)));
  stream.End();
  EXPECT_THAT(stream.refusals(), IsEmpty()) << node.AgentLog();
  EXPECT_EQ(node.kubelet().healthy_devices(), 20u);
  EXPECT_EQ(node.SchedulerPids(), schedulers);
  EXPECT_EQ(AskScheduler(before)->bound, 1u);
  // The kubelet's socket, the last agent's, and at most one more of it that is to be refused.
  EXPECT_LE(Count(node.kubelet().plugin_directory()), 3);
  // Registered once more after the old one's end, its own end is noticed.
  EXPECT_TRUE(node.WaitFor([&] {
    const std::string log = node.AgentLog();
    const std::string line = "plugin: registered gpuloom.io/gpu";
    return log.find(line) != log.rfind(line);
  })) << node.AgentLog();
  node.KillAgent(SIGKILL);
  EXPECT_TRUE(node.WaitFor([&] { return node.kubelet().healthy_devices() == 0; }));
}

TEST(AgentUpdate, NoPodIsLost) { ReplaceWithoutLoss(FakeKubelet::Takeover::kByName, 10, 200); }

TEST(AgentUpdate, NorWithAnOlderOrANewerKubelet) {
  ReplaceWithoutLoss(FakeKubelet::Takeover::kByEndpoint, 2, 40);
  ReplaceWithoutLoss(FakeKubelet::Takeover::kBySocket, 2, 40);
}

TEST(AgentUpdate, AnAgentThatDiesAtItsStartChangesNothing) {
  AgentNode node;
  Start(&node);
  PodStream stream(&node);
  for (int i = 0; i < 3; ++i) {
    const pid_t failing = node.StartFurtherAgent({"--pinned-limit", "much"});
    int status = 0;
    EXPECT_EQ(waitpid(failing, &status, 0), failing);
    EXPECT_NE(status, 0);
  }
  EXPECT_TRUE(node.WaitForLog("in charge again")) << node.AgentLog();
  const int so_far = stream.admitted();
  EXPECT_TRUE(node.WaitFor([&] { return stream.admitted() >= so_far + 20; }));
  stream.End();
  EXPECT_THAT(stream.refusals(), IsEmpty()) << node.AgentLog();
}

TEST(AgentUpdate, OneThatDiesAfterItTookOverIsReplacedByTheOldOne) {
  AgentNode node;
  Start(&node);
  const pid_t next = node.StartFurtherAgent({});
  ASSERT_TRUE(node.WaitFor([&] { return node.kubelet().registrations() == 2; }));
  ASSERT_TRUE(node.WaitForLog("handed over to another one")) << node.AgentLog();
  kill(next, SIGKILL);
  EXPECT_EQ(waitpid(next, nullptr, 0), next);
  EXPECT_TRUE(node.WaitFor([&] { return node.kubelet().registrations() >= 3; })) << node.AgentLog();
  ASSERT_TRUE(node.kubelet().WaitForDevices(20, kPatience).ok()) << node.AgentLog();
  (void)RunPod(&node, "after");
}

TEST(AgentRestart, PodsLongGoneStartNoExecutorsAndLeaveNothing) {
  AgentNode node;
  node.WritePolicy("defaults: {trustDomain: pod}\n");
  Start(&node, {"--spare-executors", "0"});  // all that start are somebody's
  std::vector<FakeContainer> containers;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "short" + std::to_string(i);
    containers.push_back(RunPod(&node, name));
    node.kubelet().RemovePod("a", name);
  }
  containers.push_back(RunPod(&node, "stays"));
  const FakeContainer stays = containers.back();
  EXPECT_EQ(node.ExecutorStarts(), 9);
  EXPECT_EQ(Count(node.state_directory() + "/allocations"), 9);

  node.KillAgent(SIGKILL);
  for (const pid_t pid : node.SchedulerPids()) kill(pid, SIGKILL);
  node.StartAgent({"--spare-executors", "0"});
  EXPECT_TRUE(node.WaitFor([&] {
    return std::all_of(containers.begin(), containers.end(), [](const FakeContainer& container) {
      const auto state = AskScheduler(container);
      return state.has_value() && state->bound == 1;
    });
  })) << node.AgentLog();
  EXPECT_EQ(node.ExecutorStarts(), 9) << "whatever is only remembered starts none";
  ASSERT_TRUE(node.kubelet().WaitForDevices(20, kPatience).ok());
  // A start that the kubelet announces does.
  ASSERT_TRUE(node.kubelet().PrepareStart("a", "stays", "main").ok());
  EXPECT_EQ(node.ExecutorStarts(), 10);

  node.KillAgent(SIGTERM);
  node.StartAgent({"--grace-seconds", "1", "--missing-seconds", "1"});
  EXPECT_TRUE(node.WaitFor([&] { return Count(node.state_directory() + "/allocations") == 1; }))
      << node.AgentLog();
  EXPECT_TRUE(node.WaitFor([&] { return Count(node.state_directory() + "/records") == 1; }));
  EXPECT_TRUE(fs::exists(stays.HostPath("/var/run/gpuloom")));
  EXPECT_EQ(AskScheduler(stays)->bound, 1u);
  EXPECT_FALSE(AskScheduler(containers.front()).has_value());
}

}  // namespace
}  // namespace gpuloom
