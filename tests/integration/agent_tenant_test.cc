// SPDX-License-Identifier: Apache-2.0
// CUDA programs in pods: kubelet stand-in, gpuloom-agent, scheduler, executor and shim together.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/fake_kubelet/replica_set.h"
#include "tests/integration/agent_tenant_fixture.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

TEST_F(AgentTenant, AProgramRunsAndIsCounted) {
  const FakeContainer container = Admit("team-a", "p");
  for (const char* program : {"vadd_static", "vadd_shared"}) {
    const Ran ran = Run(container, program);
    EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
    EXPECT_THAT(ran.output, HasSubstr("PASS vadd"));
  }
  EXPECT_TRUE(node_.WaitFor([&] {
    const auto state = AskScheduler(container);
    return state->kernels_launched == 2 && state->memory_used_bytes == 0;
  }));
}

TEST_F(AgentTenant, TheFirstPodOfATrustDomainGetsTheSpareExecutor) {
  EXPECT_TRUE(node_.WaitFor([&] {
    return node_.SchedulerLogs().find("is a spare one on GPU-") != std::string::npos;
  })) << node_.SchedulerLogs();
  const Ran ran = Run(Admit("team-a", "p"), "vadd_static");
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  EXPECT_THAT(node_.SchedulerLogs(), HasSubstr("is now the executor of domain namespace/team-a"));
  EXPECT_EQ(node_.ExecutorStarts(), 0);
}

TEST_F(AgentTenant, AFailedAssertSaysSoOnTheTenantsStandardError) {
  const Ran ran = Run(Admit("team-a", "p"), "device_assert_static");
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  EXPECT_THAT(ran.output, HasSubstr("Assertion `value == 1` failed"));
}

TEST_F(AgentTenant, TheAgentSaysOnceWhatAPodMisses) {
  const FakeContainer container = Admit("team-a", "p");
  for (int i = 0; i < 2; ++i) {
    const Ran ran = Run(container, "gpuloom-tenant", {"unsupported"});
    EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  }
  const std::string line = "team-a/p (main) asked CUDA for cuGraphicsUnregisterResource,";
  EXPECT_TRUE(node_.WaitForLog(line)) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog("asked CUDA for cuFly?Away,")) << node_.AgentLog();
  const std::string log = node_.AgentLog();
  EXPECT_EQ(log.find(line), log.rfind(line));
}

TEST_F(AgentTenant, WithoutItsPodBoundAContainerIsRefused) {
  // Allocated, but PreStartContainer never said whose it is.
  const auto pod = node_.kubelet().Admit({"team-a", "p", {{"main", 1, false}}});
  ASSERT_TRUE(pod.ok());
  const Ran ran = Run(pod->containers[0], "vadd_static");
  EXPECT_NE(ran.result.exit_code, 0);
  EXPECT_THAT(ran.output, HasSubstr("FAIL vadd"));
}

TEST_F(AgentTenant, TenantsDoNotNoticeThatTheAgentIsReplaced) {
  const FakeContainer container = Admit("team-a", "p");
  Ran ran;
  std::thread tenant([&] { ran = Run(container, "spin_static", {"15"}); });
  EXPECT_TRUE(node_.WaitFor([&] { return AskScheduler(container)->sessions == 1; }));
  node_.KillAgent(SIGKILL);
  node_.StartAgent();
  EXPECT_TRUE(node_.WaitForLog("adopted scheduler")) << node_.AgentLog();
  tenant.join();
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output;
  // And a pod after it is served as before.
  EXPECT_TRUE(node_.WaitFor([&] { return node_.kubelet().registrations() == 2; }));
  EXPECT_TRUE(node_.kubelet().WaitForDevices(10, kAgentPatience).ok());
  const Ran next = Run(Admit("team-b", "q"), "vadd_static");
  EXPECT_EQ(next.result.exit_code, 0) << next.output;
}

// The old agent ends before the new one starts, as where there is no surge, or an image must be fetched first.
TEST_F(AgentTenant, BetweenTwoAgentsWhatRunsIsServedAndWhatIsNewFailsOrWaits) {
  FakeKubelet& kubelet = node_.kubelet();
  const FakeContainer container = Admit("team-a", "p");
  testing::Process tenant = Start(container, {"bystander"});
  const auto works = [&] {
    tenant.WriteLine("");
    return tenant.ReadLine("slowest").has_value();
  };
  ASSERT_TRUE(tenant.ReadLine("ready").has_value());
  FakeReplicaSet late(&kubelet, {"team-b", "late", {{"main", 1}}});
  node_.KillAgent(SIGTERM);
  ASSERT_TRUE(node_.WaitFor([&] { return kubelet.healthy_devices() == 0; }));

  // Served: who runs, and more programs of their containers.
  EXPECT_TRUE(works());
  const Ran ran = Run(container, "vadd_static");
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output;
  // Refused for good: a pod that was on its way to this node.
  EXPECT_FALSE(kubelet.Admit({"team-b", "q", {{"main", 1}}}).ok());
  const auto failed = kubelet.StatusOf("team-b", "q");
  ASSERT_TRUE(failed.has_value());
  EXPECT_EQ(failed->reason, "UnexpectedAdmissionError");
  EXPECT_EQ(failed->message,
            "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate "
            "unhealthy devices gpuloom.io/gpu, which is unexpected");
  // Waiting: pods that the cluster has yet to place, and containers that start again.
  late.Sync();
  EXPECT_THAT(late.pending_because(), HasSubstr("Insufficient gpuloom.io/gpu"));
  EXPECT_FALSE(kubelet.PrepareStart("team-a", "p", "main").ok());

  node_.StartAgent();
  ASSERT_TRUE(node_.WaitFor([&] { return kubelet.healthy_devices() == 10; })) << node_.AgentLog();
  EXPECT_TRUE(works());
  EXPECT_TRUE(kubelet.PrepareStart("team-a", "p", "main").ok()) << node_.AgentLog();
  late.Sync();
  EXPECT_TRUE(late.is_running());
  EXPECT_EQ(kubelet.StatusOf("team-b", "q")->phase, "Failed") << "nobody tries it again";
}

TEST_F(AgentTenant, AfterASchedulersDeathTheSameContainerGetsASessionAgain) {
  const FakeContainer container = Admit("team-a", "p");
  Ran ran;
  std::thread tenant([&] { ran = Run(container, "spin_static", {"30"}); });
  EXPECT_TRUE(node_.WaitFor([&] {
    const auto state = AskScheduler(container);
    return state.has_value() && state->sessions == 1;
  }));
  for (const pid_t pid : node_.SchedulerPids()) kill(pid, SIGKILL);
  tenant.join();
  // Told, not left hanging.
  EXPECT_NE(ran.result.exit_code, 0);
  EXPECT_FALSE(ran.result.timed_out);
  EXPECT_TRUE(node_.WaitFor([&] {
    const auto state = AskScheduler(container);
    return state.has_value() && state->bound == 1;
  })) << node_.AgentLog();
  const Ran next = Run(Restart("team-a", "p"), "vadd_static");
  EXPECT_EQ(next.result.exit_code, 0) << next.output << node_.AgentLog();
}

}  // namespace
}  // namespace gpuloom
