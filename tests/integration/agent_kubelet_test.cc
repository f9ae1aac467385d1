// SPDX-License-Identifier: Apache-2.0
// gpuloom-agent between a kubelet and real schedulers on software GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_process.h"

namespace gpuloom {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr std::chrono::seconds kPatience{60};
constexpr uint64_t kMiB = uint64_t{1} << 20;

FakePodSpec Pod(const char* pod_namespace, const char* name, int slots) {
  return {pod_namespace, name, {{"main", slots, false}}};
}

std::string Directory(const FakeContainer& container) {
  return container.HostPath("/var/run/gpuloom");
}

class AgentKubelet : public ::testing::Test {
 protected:
  void Start(const std::vector<std::string>& more_arguments = {}, int devices_wanted = 20) {
    ASSERT_TRUE(node_.kubelet().Start().ok());
    node_.StartAgent(more_arguments);
    const absl::Status devices = node_.kubelet().WaitForDevices(devices_wanted, kPatience);
    ASSERT_TRUE(devices.ok()) << devices << "\n" << node_.AgentLog();
  }
  // Admits, starts and returns the pod's one container.
  FakeContainer Run(const char* pod_namespace, const char* name, int slots) {
    const auto pod = node_.kubelet().Admit(Pod(pod_namespace, name, slots));
    EXPECT_TRUE(pod.ok()) << pod.status();
    const auto container = node_.kubelet().PrepareStart(pod_namespace, name, "main");
    EXPECT_TRUE(container.ok()) << container.status() << "\n" << node_.AgentLog();
    return container.ok() ? *container : FakeContainer{};
  }
  uint64_t Quota(const FakeContainer& container) {
    const auto state = AskScheduler(container);
    return state.has_value() ? state->memory_quota_bytes : 0;
  }

  AgentNode node_;
};

TEST_F(AgentKubelet, APodGetsASocketOfItsOwnAndItsGrant) {
  node_.WritePolicy("namespaces:\n  team-a: {memory: 32MiB, trustDomain: shared}\n");
  Start();
  const FakeContainer container = Run("team-a", "trainer", 2);
  EXPECT_TRUE(fs::is_socket(Directory(container) + "/gpuloom.sock"));
  EXPECT_EQ(container.envs.at("NVIDIA_VISIBLE_DEVICES"), "void");
  for (const FakeMount& mount : container.mounts)
    EXPECT_TRUE(mount.read_only) << mount.container_path;
  EXPECT_TRUE(container.devices.empty());
  const std::string cuda = container.HostPath("/usr/lib/x86_64-linux-gnu/libcuda.so.1");
  const std::string nvml = container.HostPath("/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1");
  EXPECT_TRUE(fs::is_regular_file(cuda) && fs::is_regular_file(nvml));
  EXPECT_NE(cuda, nvml);
  EXPECT_TRUE(fs::is_regular_file(container.HostPath("/usr/local/bin/gpuloom-trace")));
  EXPECT_EQ(container.HostPath("/usr/lib64/libcuda.so"), cuda);
  EXPECT_EQ(container.HostPath("/usr/local/nvidia/lib64/libnvidia-ml.so"), nvml);

  const auto state = AskScheduler(container);
  ASSERT_TRUE(state.has_value());
  EXPECT_STREQ(state->pod_namespace, "team-a");
  EXPECT_STREQ(state->pod, "trainer");
  EXPECT_STREQ(state->container, "main");
  EXPECT_STREQ(state->trust_domain, "name/shared");
  EXPECT_EQ(state->memory_quota_bytes, 64 * kMiB);
  EXPECT_EQ(state->slots, 2u);
  EXPECT_EQ(state->bound, 1u);
}

TEST_F(AgentKubelet, AContainerGetsNoDeviceUnlessItsManagedMemoryMigrates) {
  Start({"--migrate-managed-memory"});
  std::ifstream known("/proc/misc");
  const std::string misc((std::istreambuf_iterator<char>(known)), std::istreambuf_iterator<char>());
  std::vector<std::string> expected;
  if (misc.find(" userfaultfd\n") != std::string::npos) {
    expected.push_back("/dev/userfaultfd /dev/userfaultfd rw");
  }
  EXPECT_EQ(Run("team-a", "trainer", 1).devices, expected);
}

TEST_F(AgentKubelet, ARequestThatFitsOnNoSingleGpuIsRefused) {
  Start();
  // As docs/installation.md quotes it.
  EXPECT_EQ(
      node_.kubelet().Admit(Pod("a", "huge", 11)).status().message(),
      "Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed "
      "with err: rpc error: code = FailedPrecondition desc = no GPU has 11 free slots: 10+10, "
      "which "
      "is unexpected");
  EXPECT_EQ(node_.kubelet().StatusOf("a", "huge")->reason, "UnexpectedAdmissionError");
  EXPECT_EQ(node_.kubelet().Admit(Pod("a", "all", 20)).status().message(),
            "Pod was rejected: Allocate failed due to rpc error: code = FailedPrecondition desc = "
            "no GPU has 20 free slots: 10+10, which is unexpected");
  const FakeContainer first = Run("a", "p", 2);
  const std::string device = *first.device_ids.begin();
  // A kubelet that ignores the preference spreads the devices.
  std::string other = device;
  other[other.find("::") - 1] ^= 1;
  const FakePodSpec spread = Pod("a", "spread", 3);
  const auto refused = node_.kubelet().AdmitWithDevices(
      spread,
      {{device.substr(0, device.find("::")) + "::8", device.substr(0, device.find("::")) + "::9",
        other.substr(0, other.find("::")) + "::9"}});
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no GPU has 3 free slots: 2+1"));
  // Nobody else is touched, and the pod is packed beside the first.
  const FakeContainer second = Run("b", "q", 3);
  EXPECT_EQ(second.device_ids.begin()->substr(0, device.find("::")),
            device.substr(0, device.find("::")));
}

TEST_F(AgentKubelet, AnUnknownIdentityIsRefusedByName) {
  Start();
  // An init container alone: the kubelet's list does not show it.
  ASSERT_TRUE(node_.kubelet().Admit({"a", "p", {{"setup", 1, true}}}).ok());
  const auto refused = node_.kubelet().PrepareStart("a", "p", "setup");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("init container"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("::0"));
}

TEST_F(AgentKubelet, AnInitContainerIsMatchedThroughThePodsOtherContainers) {
  Start();
  const auto pod = node_.kubelet().Admit({"a", "p", {{"setup", 2, true}, {"main", 1, false}}});
  ASSERT_TRUE(pod.ok()) << pod.status();
  const auto setup = node_.kubelet().PrepareStart("a", "p", "setup");
  ASSERT_TRUE(setup.ok()) << setup.status();
  const auto main = node_.kubelet().PrepareStart("a", "p", "main");
  ASSERT_TRUE(main.ok()) << main.status();
  EXPECT_NE(Directory(*setup), Directory(*main));
  EXPECT_STREQ(AskScheduler(*setup)->pod, "p");
  EXPECT_STREQ(AskScheduler(*main)->container, "main");
}

TEST_F(AgentKubelet, ARestartedKubeletIsRegisteredWithAgain) {
  Start();
  const FakeContainer before = Run("a", "p", 1);
  node_.kubelet().Stop();
  ASSERT_TRUE(node_.kubelet().Start().ok());
  ASSERT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
  EXPECT_EQ(node_.kubelet().registrations(), 2);
  // The container restarts without Allocate: same directory.
  const auto after = node_.kubelet().PrepareStart("a", "p", "main");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(Directory(*after), Directory(before));
  EXPECT_TRUE(fs::is_socket(Directory(*after) + "/gpuloom.sock"));
}

TEST_F(AgentKubelet, ItsOwnSocketDeletedIsServedAnew) {
  Start();
  for (const fs::directory_entry& entry :
       fs::directory_iterator(node_.kubelet().plugin_directory())) {
    if (entry.path().filename() != "kubelet.sock") fs::remove(entry.path());
  }
  EXPECT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 2; }))
      << node_.AgentLog();
  EXPECT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok());
}

TEST_F(AgentKubelet, AKubeletThatAnswersNothingIsNamedAndWaitedFor) {
  ASSERT_TRUE(node_.kubelet().Start().ok());
  node_.kubelet().SetAnswers(false);
  node_.StartAgent();
  EXPECT_TRUE(node_.WaitForLog("did not answer Register within 5000 ms")) << node_.AgentLog();
  EXPECT_THAT(node_.AgentLog(), HasSubstr("kubelet.sock"));
  node_.kubelet().SetAnswers(true);
  EXPECT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
}

TEST_F(AgentKubelet, AReplacedAgentAdoptsWhatRuns) {
  Start();
  const FakeContainer before = Run("a", "p", 1);
  const std::vector<pid_t> schedulers = node_.SchedulerPids();
  ASSERT_THAT(schedulers, SizeIs(2));
  node_.KillAgent(SIGKILL);
  // The scheduler serves on.
  EXPECT_STREQ(AskScheduler(before)->pod, "p");
  node_.StartAgent();
  ASSERT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 2; }))
      << node_.AgentLog();
  ASSERT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok());
  EXPECT_EQ(node_.SchedulerPids(), schedulers);
  EXPECT_THAT(node_.AgentLog(), HasSubstr("adopted scheduler"));
  const auto after = node_.kubelet().PrepareStart("a", "p", "main");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(Directory(*after), Directory(before));
}

TEST_F(AgentKubelet, AKilledSchedulerIsStartedAgainAndToldEverything) {
  Start();
  const FakeContainer container = Run("a", "p", 1);
  const std::vector<pid_t> before = node_.SchedulerPids();
  for (const pid_t pid : before) kill(pid, SIGKILL);
  EXPECT_TRUE(node_.WaitFor([&] {
    const auto state = AskScheduler(container);
    return state.has_value() && state->bound == 1;
  })) << node_.AgentLog();
  EXPECT_NE(node_.SchedulerPids(), before);
  EXPECT_STREQ(AskScheduler(container)->pod, "p");
}

TEST_F(AgentKubelet, AGpuWithoutSchedulerIsShownUnhealthy) {
  ASSERT_TRUE(node_.kubelet().Start().ok());
  node_.StartAgent({"--schedulers", "adopt"});
  const pid_t schedulers = node_.StartFurtherAgent({"--schedulers", "only"});
  ASSERT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
  kill(schedulers, SIGTERM);
  EXPECT_EQ(waitpid(schedulers, nullptr, 0), schedulers);
  EXPECT_TRUE(node_.WaitFor([&] { return node_.kubelet().healthy_devices() == 0; }));
}

TEST_F(AgentKubelet, IdsThatPassToAnotherNamespaceGetAFreshDirectory) {
  Start();
  const FakeContainer first = Run("a", "p", 1);
  node_.kubelet().RemovePod("a", "p");
  const auto next = node_.kubelet().AdmitWithDevices(Pod("b", "q", 1), {first.device_ids});
  ASSERT_TRUE(next.ok()) << next.status();
  const auto second = node_.kubelet().PrepareStart("b", "q", "main");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(Directory(*second), Directory(first));
  EXPECT_STREQ(AskScheduler(*second)->pod_namespace, "b");
  // The first one's goes at once, with the times of collecting that an agent has by itself: nobody shall be taken for the
  // holder of what another one has.
  EXPECT_TRUE(node_.WaitFor([&] { return !fs::exists(Directory(first)); })) << node_.AgentLog();
  EXPECT_FALSE(AskScheduler(first).has_value());
  EXPECT_TRUE(AskScheduler(*second).has_value());
}

TEST_F(AgentKubelet, ADeletedPodsDirectoryIsCollected) {
  Start({"--grace-seconds", "1", "--missing-seconds", "3"});
  const FakeContainer gone = Run("a", "p", 1);
  const FakeContainer stays = Run("b", "q", 1);
  node_.kubelet().RemovePod("a", "p");
  EXPECT_TRUE(node_.WaitFor([&] { return !fs::exists(Directory(gone)); })) << node_.AgentLog();
  EXPECT_FALSE(AskScheduler(gone).has_value());
  EXPECT_TRUE(AskScheduler(stays).has_value());
  EXPECT_TRUE(fs::exists(Directory(stays)));
}

TEST_F(AgentKubelet, PolicyIsReloadedForRunningPodsAndABadOneKeepsTheOld) {
  node_.WritePolicy("defaults: {memory: 16MiB}\n");
  Start();
  const FakeContainer container = Run("a", "p", 2);
  EXPECT_EQ(Quota(container), 32 * kMiB);
  node_.WritePolicy("defaults: {memory: 24MiB}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return Quota(container) == 48 * kMiB; })) << node_.AgentLog();
  node_.WritePolicy("defaults: {memroy: 8MiB}\n");
  EXPECT_TRUE(
      node_.WaitForLog("policy.yaml:1:12: defaults.memroy: unknown key; did you mean memory?"));
  EXPECT_THAT(node_.AgentLog(), HasSubstr("the old policy stays in force"));
  EXPECT_EQ(Quota(container), 48 * kMiB);
  // More than there is: 10 slots of a GPU of 1 GiB.
  node_.WritePolicy("defaults: {memory: 512MiB}\n");
  EXPECT_TRUE(node_.WaitForLog("is more than GPU"));
  EXPECT_EQ(Quota(container), 48 * kMiB);
}

TEST_F(AgentKubelet, ANewPolicyIsInForceForAllThatRunWithinASecond) {
  node_.SetSlots(15);
  node_.WritePolicy("defaults: {memory: 16MiB, weight: 100}\n");
  Start({}, 30);
  std::vector<FakeContainer> containers;
  for (int i = 0; i < 24; ++i) {
    containers.push_back(Run(i % 2 == 0 ? "a" : "b", ("p" + std::to_string(i)).c_str(), 1));
  }
  const auto all_have = [&](uint32_t weight) {
    return std::all_of(containers.begin(), containers.end(), [&](const FakeContainer& container) {
      const auto state = AskScheduler(container);
      return state.has_value() && state->shares.namespace_weight == weight;
    });
  };
  // Each time right after the file has been looked at, which is the longest wait. A busy machine is slow sometimes, and
  // once or more in a minute it is not.
  using Clock = std::chrono::steady_clock;
  uint32_t weight = 199;
  EXPECT_TRUE(node_.WaitFor([&] {
    const Clock::time_point written = Clock::now();
    node_.WritePolicy("defaults: {memory: 16MiB, weight: " + std::to_string(++weight) + "}\n");
    EXPECT_TRUE(node_.WaitFor([&] { return all_have(weight); })) << node_.AgentLog();
    return weight != 200 && Clock::now() - written < std::chrono::seconds(1);
  }));
}

TEST_F(AgentKubelet, APodThatThePolicyRefusesStartsWhenItIsAllowed) {
  node_.WritePolicy("namespaces:\n  a: {gpus: [7]}\n  one: {maxTenants: 1, weight: 200}\n");
  Start();
  ASSERT_TRUE(node_.kubelet().Admit(Pod("a", "p", 1)).ok());
  const auto start = [&] { return node_.kubelet().PrepareStart("a", "p", "main"); };
  EXPECT_THAT(std::string(start().status().message()),
              AllOf(HasSubstr("policy: pod a/p, container main: "),
                    HasSubstr("policy.yaml:2:13: namespaces.a.gpus: namespace a may not use GPU "
                              "GPU-")));
  node_.WritePolicy("namespaces:\n  a: {gpus: [0, 1]}\n  one: {maxTenants: 1}\n");
  EXPECT_TRUE(node_.WaitFor([&] { return start().ok(); })) << node_.AgentLog();

  Run("one", "first", 1);
  ASSERT_TRUE(node_.kubelet().Admit(Pod("one", "second", 1)).ok());
  EXPECT_THAT(std::string(node_.kubelet().PrepareStart("one", "second", "main").status().message()),
              HasSubstr("namespaces.one.maxTenants: namespace one has 1 containers on GPU"));
  node_.kubelet().RemovePod("one", "first");
  const auto second = node_.kubelet().PrepareStart("one", "second", "main");
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST_F(AgentKubelet, ABadPolicyHoldsNobodyUpOverARestart) {
  node_.WritePolicy("defaults: {memory: 16MiB}\n");
  Start();
  const FakeContainer before = Run("a", "p", 2);
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }));
  node_.WritePolicy("defaults: {memroy: 8MiB}\n");
  EXPECT_TRUE(node_.WaitForLog("did you mean memory?"));
  node_.KillAgent(SIGKILL);
  node_.StartAgent();
  ASSERT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 2; }))
      << node_.AgentLog();
  ASSERT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
  EXPECT_EQ(Quota(before), 32 * kMiB);
  EXPECT_EQ(Quota(Run("a", "q", 1)), 16 * kMiB);
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  EXPECT_THAT(
      node_.RunAgentProbe("--probe-ready"),
      AllOf(HasSubstr("policy.yaml:1:12: defaults.memroy: unknown key; did you mean memory?"),
            HasSubstr("the last good policy stays in force")));
}

TEST_F(AgentKubelet, ABadFirstPolicyOffersNothingUntilItIsMended) {
  node_.WritePolicy("defaults:\n  memory: lots\n");
  ASSERT_TRUE(node_.kubelet().Start().ok());
  node_.StartAgent();
  ASSERT_TRUE(node_.WaitFor([&] { return node_.SchedulerPids().size() == 2; }));
  ASSERT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 1; }));
  EXPECT_EQ(node_.kubelet().healthy_devices(), 0u);
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"),
              AllOf(HasSubstr("policy.yaml:2:11: defaults.memory: 'lots' is not a size"),
                    HasSubstr("there has been no good one")));
  node_.WritePolicy("defaults:\n  memory: 16MiB\n");
  ASSERT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }));
}

TEST_F(AgentKubelet, ANodeWithoutAUsableGpuIsServedWithoutSlots) {
  ASSERT_TRUE(node_.kubelet().Start().ok());
  node_.StartAgentWithNvml(GPULOOM_NVML_WITHOUT_DRIVER);
  ASSERT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 1; }))
      << node_.AgentLog();
  EXPECT_EQ(node_.kubelet().healthy_devices(), 0u);
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  EXPECT_THAT(node_.AgentLog(), HasSubstr("nvml: init: Driver Not Loaded"));
  EXPECT_THAT(node_.AgentLog(), HasSubstr("looking again every 30 s"));
}

TEST_F(AgentKubelet, SchedulersInAProcessOfTheirOwnAreAdoptedAndEndWithIt) {
  ASSERT_TRUE(node_.kubelet().Start().ok());
  node_.StartAgent({"--schedulers", "adopt"});
  EXPECT_TRUE(node_.WaitForLog("this agent only adopts")) << node_.AgentLog();
  const pid_t schedulers = node_.StartFurtherAgent({"--schedulers", "only"});
  EXPECT_TRUE(node_.kubelet().WaitForDevices(20, kPatience).ok()) << node_.AgentLog();
  const FakeContainer container = Run("a", "p", 1);
  EXPECT_STREQ(AskScheduler(container)->pod, "p");
  kill(schedulers, SIGTERM);
  int status = 0;
  EXPECT_EQ(waitpid(schedulers, &status, 0), schedulers);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(node_.SchedulerPids(), IsEmpty());
}

TEST(Chart, EveryArgumentIsOneOfTheAgents) {
  FILE* help = popen(GPULOOM_AGENT_PATH " --help", "r");
  ASSERT_NE(help, nullptr);
  std::string known;
  for (char line[4096]; std::fgets(line, sizeof(line), help) != nullptr;) known += line;
  pclose(help);
  int count = 0;
  for (const char* name : {"agent.yaml", "schedulers.yaml"}) {
    std::ifstream file(std::string(GPULOOM_SOURCE_DIR "/charts/gpuloom/templates/") + name);
    for (std::string line; std::getline(file, line);) {
      const size_t begin = line.find("- --");
      if (begin == line.npos) continue;
      const std::string flag = line.substr(begin + 2, line.find('=') - begin - 2);
      EXPECT_THAT(known, HasSubstr(flag + " ")) << name << ": " << line;
      ++count;
    }
  }
  EXPECT_GT(count, 10);
}

}  // namespace
}  // namespace gpuloom
