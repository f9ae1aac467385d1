// SPDX-License-Identifier: Apache-2.0
// Of two GPUs one falls off the bus, as its driver tells it, while a tenant is at work on each: who is told, who is not
// disturbed, and that it heals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "agent/metrics/testing/http.h"
#include "agent/node/pci.h"
#include "tests/integration/agent_tenant_fixture.h"

namespace gpuloom {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class AgentHealth : public AgentTenant {
 protected:
  AgentHealth() : AgentTenant(2, 5) {}
  void SetUp() override {
    arguments_ = node_.StartApiServer("{}");
    arguments_.insert(arguments_.end(), {"--health-nvml", GPULOOM_NVML_WITH_FAULTS,
                                         "--metrics-address", "127.0.0.1:0"});
    AgentTenant::SetUp();
    // Their UUIDs end with their numbers, from 0 on.
    std::set<std::string> gpus;
    for (const std::string& id : node_.kubelet().healthy_ids()) gpus.insert(GpuOf(id));
    ASSERT_EQ(gpus.size(), 2u);
    first_ = *gpus.begin();
    second_ = *gpus.rbegin();
  }
  std::vector<std::string> AgentArguments() const override { return arguments_; }

  // As device IDs name it.
  static std::string GpuOf(const std::string& device_id) {
    return device_id.substr(0, device_id.find("::"));
  }
  static std::string UuidOf(const std::string& gpu) { return "GPU" + gpu.substr(3); }
  FakeContainer AdmitOn(const std::string& gpu, const char* pod_namespace) {
    const auto pod =
        node_.kubelet().AdmitWithDevices({pod_namespace, "p", {{"main", 1}}}, {{gpu + "::0"}});
    EXPECT_TRUE(pod.ok()) << pod.status();
    return Restart(pod_namespace, "p");
  }
  std::set<std::string> OfferedGpus() {
    std::set<std::string> gpus;
    for (const std::string& id : node_.kubelet().healthy_ids()) gpus.insert(GpuOf(id));
    return gpus;
  }
  bool WaitForMetric(const std::string& line) {
    const int port = node_.MetricsPort();
    return node_.WaitFor(
        [&] { return HttpGet(port, "/metrics").find("\n" + line + "\n") != std::string::npos; });
  }
  std::string State(const std::string& gpu, const char* state) {
    return "gpuloom_gpu_state{gpu=\"" + UuidOf(gpu) + "\",state=\"" + state + "\"} 1";
  }
  bool IsReported(const std::string& text) {
    return node_.WaitFor([&] { return node_.ApiServerLog().find(text) != std::string::npos; });
  }

  std::vector<std::string> arguments_;
  std::string first_, second_;
};

TEST_F(AgentHealth, AGpuThatFallsOffTheBusIsOfferedToNobodyAndTheOtherIsNotDisturbed) {
  testing::Process healthy = Start(AdmitOn(first_, "team-a"), {"bystander"});
  testing::Process sick = Start(AdmitOn(second_, "team-b"), {"bystander"});
  const auto works = [](testing::Process& tenant) {
    tenant.WriteLine("");
    return tenant.ReadLine("slowest").has_value();
  };
  for (testing::Process* tenant : {&healthy, &sick}) {
    ASSERT_TRUE(tenant->ReadLine("ready").has_value());
    ASSERT_TRUE(works(*tenant));
  }
  const std::vector<pid_t> schedulers = node_.SchedulerPids();

  node_.LoseGpu(1);
  const std::set<std::string> left = {first_};
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
  EXPECT_EQ(node_.kubelet().healthy_devices(), 5u);
  const std::string reason = UuidOf(second_) + " is sick: Xid 79 (GPU has fallen off the bus)";
  EXPECT_TRUE(node_.WaitForLog(reason)) << node_.AgentLog();
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"),
              AllOf(HasSubstr(reason + "; it is probed"), Not(HasSubstr(UuidOf(first_)))));
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "") << "nobody is to restart the agent";
  EXPECT_TRUE(IsReported("\"reason\": \"GpuSick\", \"message\": \"GPU " + reason + "\""))
      << node_.ApiServerLog();
  EXPECT_TRUE(WaitForMetric(State(second_, "sick")));
  EXPECT_TRUE(WaitForMetric(State(first_, "healthy")));
  int status = -1;
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), HasSubstr("sick: Xid 79"));
  EXPECT_EQ(node_.RunAgentProbe("--probe-gpu", {UuidOf(first_)}), "");
  EXPECT_THAT(node_.RunAgentProbe("--probe-gpu", {UuidOf(second_)}),
              HasSubstr("the driver does not find the GPU among its 1"));
  // Whoever comes now gets the other one; its tenant goes on, and an executor of its own begins there.
  EXPECT_TRUE(works(healthy));
  const FakeContainer late = Admit("team-c", "p");
  EXPECT_EQ(GpuOf(*late.device_ids.begin()), first_);
  const Ran ran = Run(late, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();

  node_.LoseGpus(false);
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus().size() == 2; })) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog(UuidOf(second_) + " is healthy"));
  EXPECT_TRUE(IsReported("\"reason\": \"GpuHealthy\", \"message\": \"GPU " + UuidOf(second_) +
                         " is healthy\""))
      << node_.ApiServerLog();
  EXPECT_TRUE(WaitForMetric(State(second_, "healthy")));
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }));
  EXPECT_TRUE(works(healthy));
  EXPECT_TRUE(works(sick)) << "what an agent believes takes nothing from who runs";
  EXPECT_EQ(node_.SchedulerPids(), schedulers);
}

// Once it serves: NVML stays open for the faults that it reports.
TEST_F(AgentHealth, ADriverThatHangsLaterIsSaidAndKeepsNeitherTenantsNorTheAgentsEnd) {
  node_.HangAtGpu(0);
  const std::string trouble = "nvml: the driver has not answered for 30 s";
  ASSERT_TRUE(node_.WaitForLog(trouble)) << node_.AgentLog();
  EXPECT_TRUE(WaitForMetric("gpuloom_node_gpu_unusable 1"));
  EXPECT_TRUE(IsReported("\"reason\": \"GpuUnusable\", \"message\": \"" + trouble))
      << node_.ApiServerLog();
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"), HasSubstr(trouble));
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  EXPECT_EQ(OfferedGpus().size(), 2u) << "probes say that they work";
  const Ran ran = Run(AdmitOn(first_, "team-a"), "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();

  node_.KillAgent(SIGTERM);
  EXPECT_THAT(node_.AgentLog(), AllOf(HasSubstr("is left behind"), HasSubstr("agent: stopped")));
  node_.ForgetNvmlEvents();
  node_.StartAgent(AgentArguments());
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }))
      << node_.AgentLog();
}

// An update of the agent, a restart of the node: with the schedulers in a process of their own, as in the chart's pod.
class AgentHealthRestarted : public AgentHealth {
 protected:
  void SetUp() override {
    StartSchedulers();
    AgentHealth::SetUp();
  }
  void TearDown() override { EndSchedulers(); }
  std::vector<std::string> AgentArguments() const override {
    std::vector<std::string> arguments = arguments_;
    arguments.insert(arguments.end(), {"--schedulers", "adopt"});
    return arguments;
  }
  void StartSchedulers() { schedulers_ = node_.StartFurtherAgent({"--schedulers", "only"}); }
  void EndSchedulers() {
    const pid_t ended = std::exchange(schedulers_, 0);
    if (ended == 0) return;
    kill(ended, SIGTERM);
    EXPECT_EQ(waitpid(ended, nullptr, 0), ended);
  }
  void RestartAgent() {
    node_.KillAgent(SIGTERM);
    node_.StartAgent(AgentArguments());
    ASSERT_TRUE(node_.WaitForLog("agent: ready")) << node_.AgentLog();
  }

  pid_t schedulers_ = 0;
};

TEST_F(AgentHealthRestarted, OneGpuThatIsLostKeepsItsPlaceAndTheOtherServesOn) {
  const FakeContainer container = AdmitOn(second_, "team-b");
  ASSERT_EQ(Run(container, "gpuloom-tenant", {"vadd"}).result.exit_code, 0);
  node_.LoseGpu(1);
  const std::set<std::string> left = {first_};
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
  const std::string sick = UuidOf(second_) + " is sick: Xid 79 (GPU has fallen off the bus)";
  ASSERT_TRUE(node_.WaitForLog(sick)) << node_.AgentLog();

  EndSchedulers();
  StartSchedulers();
  RestartAgent();
  EXPECT_TRUE(node_.WaitForLog("inventory: GPU " + UuidOf(second_) + " cannot be used: "))
      << node_.AgentLog();
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
  EXPECT_TRUE(WaitForMetric("gpuloom_gpu_slots_allocated{gpu=\"" + UuidOf(second_) + "\"} 1"));
  EXPECT_THAT(node_.RunAgentProbe("--probe-ready"),
              AllOf(HasSubstr(sick), Not(HasSubstr(UuidOf(first_)))));
  EXPECT_TRUE(WaitForMetric(State(second_, "sick")));
  const FakeContainer other = AdmitOn(first_, "team-a");
  const Ran ran = Run(other, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
  // Its container cannot start now, and is not sent away.
  const auto refused = node_.kubelet().PrepareStart("team-b", "p", "main");
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("no scheduler for GPU"));
  EXPECT_THAT(node_.AgentLog(), Not(HasSubstr(UuidOf(second_) + " is healthy")));

  node_.LoseGpus(false);
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus().size() == 2; })) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitForLog(UuidOf(second_) + " is healthy")) << node_.AgentLog();
  const FakeContainer again = Restart("team-b", "p");
  EXPECT_EQ(again.device_ids, container.device_ids);
  const Ran back = Run(again, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(back.result.exit_code, 0) << back.output << node_.AgentLog();
}

// By an Xid, as which nothing but a probe heals it.
TEST_F(AgentHealthRestarted, ASickGpuIsSickForTheNextAgentUntilAProbeSucceeds) {
  node_.LoseGpu(1);
  const std::set<std::string> left = {first_};
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
  const std::string sick = UuidOf(second_) + " is sick: Xid 79 (GPU has fallen off the bus)";
  ASSERT_TRUE(node_.WaitForLog(sick)) << node_.AgentLog();
  // The driver, which was loaded again, has nothing to report.
  node_.ForgetNvmlEvents();
  node_.KillAgent(SIGKILL);
  node_.StartAgent(AgentArguments());
  ASSERT_TRUE(node_.WaitForLog("agent: ready")) << node_.AgentLog();
  // Until it has said so to the kubelet, for which it was gone.
  ASSERT_TRUE(node_.WaitFor([&] { return !OfferedGpus().empty(); })) << node_.AgentLog();
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(OfferedGpus(), left);
    EXPECT_THAT(node_.RunAgentProbe("--probe-ready"), HasSubstr(sick));
  }
  EXPECT_THAT(node_.AgentLog(), Not(HasSubstr(UuidOf(second_) + " is healthy")));
}

TEST_F(AgentHealthRestarted, AGpuThatIsTakenOutIsForgottenAndItsOrderIsThereWhenItIsBack) {
  int status = -1;
  node_.RunGpuloom({"drain", UuidOf(second_), "--reason", "swap"}, &status);
  ASSERT_EQ(status, 0);
  EndSchedulers();
  node_.LoseGpu(1);
  StartSchedulers();
  RestartAgent();
  ASSERT_TRUE(node_.WaitForLog("GpuGone")) << node_.AgentLog();
  const std::set<std::string> left = {first_};
  ASSERT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
  for (const char* command : {"gpus", "tenants", "refusals"}) {
    const std::string said = node_.RunGpuloom({command}, &status);
    EXPECT_EQ(status, 0) << said;
    EXPECT_THAT(said, Not(HasSubstr(UuidOf(second_)))) << command;
  }
  EXPECT_TRUE(node_.WaitFor([&] { return node_.RunAgentProbe("--probe-ready").empty(); }));

  node_.LoseGpus(false);
  EndSchedulers();
  StartSchedulers();
  RestartAgent();
  EXPECT_TRUE(node_.WaitFor([&] {
    const std::string said = node_.RunGpuloom({"gpus"}, &status);
    return status == 0 && said.find("drained by operator: swap") != std::string::npos;
  })) << node_.AgentLog();
  EXPECT_TRUE(node_.WaitFor([&] { return OfferedGpus() == left; })) << node_.AgentLog();
}

// Without it this node has no driver, as one on which nothing is to drive.
class AgentOnlyGpu : public AgentTenant {
 protected:
  AgentOnlyGpu() : AgentTenant(1, 5) {}
  void SetUp() override {
    if (HasNvidiaGpuOnPci(kPciDevices)) GTEST_SKIP() << "this machine's own GPU would be missed";
    StartSchedulers();
    AgentTenant::SetUp();
    const std::string id = *node_.kubelet().healthy_ids().begin();
    uuid_ = "GPU" + id.substr(3, id.find("::") - 3);
  }
  void TearDown() override { EndSchedulers(); }
  std::vector<std::string> AgentArguments() const override { return {"--schedulers", "adopt"}; }
  void StartSchedulers() { schedulers_ = node_.StartFurtherAgent({"--schedulers", "only"}); }
  void EndSchedulers() {
    const pid_t ended = std::exchange(schedulers_, 0);
    if (ended == 0) return;
    kill(ended, SIGTERM);
    EXPECT_EQ(waitpid(ended, nullptr, 0), ended);
  }

  pid_t schedulers_ = 0;
  std::string uuid_;
};

TEST_F(AgentOnlyGpu, ThatIsTakenOutIsForgottenAndItsOrderIsThereWhenItIsBack) {
  int status = -1;
  node_.RunGpuloom({"drain", uuid_, "--reason", "swap"}, &status);
  ASSERT_EQ(status, 0);
  EndSchedulers();
  node_.KillAgent(SIGTERM);
  node_.StartAgentWithNvml(GPULOOM_NVML_WITHOUT_DRIVER, AgentArguments());
  ASSERT_TRUE(node_.WaitForLog("GPU " + uuid_ + " is no longer on this node")) << node_.AgentLog();
  ASSERT_TRUE(node_.WaitFor([&] {
    return node_.kubelet().registrations() >= 2 && node_.kubelet().healthy_devices() == 0;
  })) << node_.AgentLog();
  EXPECT_EQ(node_.RunAgentProbe("--probe"), "");
  for (const char* command : {"gpus", "tenants", "refusals", "doctor"}) {
    EXPECT_THAT(node_.RunGpuloom({command}, &status), Not(HasSubstr(uuid_))) << command;
  }
  EXPECT_THAT(node_.RunGpuloom({"gpus"}, &status), HasSubstr("this node has no GPU to share"));

  node_.KillAgent(SIGTERM);
  StartSchedulers();
  node_.StartAgent(AgentArguments());
  EXPECT_TRUE(node_.WaitFor([&] {
    const std::string said = node_.RunGpuloom({"gpus"}, &status);
    return status == 0 && said.find("drained by operator: swap") != std::string::npos;
  })) << node_.AgentLog();
  EXPECT_EQ(node_.kubelet().healthy_devices(), 0u);
  node_.RunGpuloom({"drain", uuid_, "--undo"}, &status);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(node_.kubelet().WaitForDevices(5, kAgentPatience).ok()) << node_.AgentLog();
  const Ran ran = Run(Admit("team-a", "p"), "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(ran.result.exit_code, 0) << ran.output << node_.AgentLog();
}

TEST(AgentHealthOfTheNode, AGpuThatCannotEvenBeNamedIsToldWhereverSomebodyLooks) {
  AgentNode node;
  ASSERT_TRUE(node.kubelet().Start().ok());
  std::vector<std::string> arguments = node.StartApiServer("{}");
  arguments.insert(arguments.end(), {"--metrics-address", "127.0.0.1:0"});
  node.StartAgentWithNvml(GPULOOM_NVML_WITH_NAMELESS_GPU, arguments);
  const int port = node.MetricsPort();
  const auto answers = [&](const char* path, const std::string& text) {
    return node.WaitFor([&] { return HttpGet(port, path).find(text) != std::string::npos; });
  };
  EXPECT_TRUE(answers("/metrics", "\ngpuloom_node_gpu_unusable 1\n")) << node.AgentLog();
  EXPECT_TRUE(answers("/metrics", "\ngpuloom_node_gpus 1\n")) << "the other one";
  const std::string trouble =
      "inventory: this node has an NVIDIA GPU that cannot be used: nvml: GPU 1: handle: GPU is "
      "lost";
  EXPECT_TRUE(answers("/api/v1/state", "\"trouble\":\"" + trouble));
  EXPECT_TRUE(node.WaitFor([&] {
    return node.ApiServerLog().find("\"reason\": \"GpuUnusable\", \"message\": \"" + trouble) !=
           std::string::npos;
  })) << node.ApiServerLog();
  EXPECT_THAT(node.RunAgentProbe("--probe-ready"), HasSubstr(trouble));
}

// The watch for faults keeps the library open, which shows this process the GPUs of that moment only.
TEST(AgentHealthOfTheNode, AGpuThatHasItsNameAgainIsSharedWithoutARestart) {
  AgentNode node;
  ASSERT_TRUE(node.kubelet().Start().ok());
  node.TakeNameOfGpu(1);
  node.StartAgentWithNvml(GPULOOM_NVML_WITH_FAULTS, {});
  ASSERT_TRUE(node.WaitForLog("on 1 GPUs")) << node.AgentLog();
  ASSERT_TRUE(node.WaitForLog("nvml: GPU 1: handle: GPU is lost")) << node.AgentLog();
  node.ForgetNvmlEvents();
  EXPECT_TRUE(node.WaitForLog("on 2 GPUs")) << node.AgentLog();
}

TEST(AgentHealthOfTheNode, ADriverThatHangsWhenAnAgentBeginsHoldsUpNeitherTheAgentNorItsEnd) {
  AgentNode node;
  ASSERT_TRUE(node.kubelet().Start().ok());
  node.HangAtGpu(0);
  node.StartAgentWithNvml(GPULOOM_NVML_WITH_FAULTS, {});
  ASSERT_TRUE(node.WaitForLog("the driver has not said for 20 s which GPUs there are"))
      << node.AgentLog();
  EXPECT_TRUE(node.WaitForLog("on 0 GPUs")) << node.AgentLog();
  EXPECT_TRUE(node.WaitFor([&] { return node.RunAgentProbe("--probe").empty(); }))
      << node.AgentLog();
  node.ForgetNvmlEvents();
  EXPECT_TRUE(node.WaitForLog("on 2 GPUs")) << node.AgentLog();

  // One that waits for the driver still.
  node.KillAgent(SIGTERM);
  node.HangAtGpu(0);
  node.StartAgentWithNvml(GPULOOM_NVML_WITH_FAULTS, {"--log-level", "debug"});
  ASSERT_TRUE(node.WaitForLog("inventory: asking the driver")) << node.AgentLog();
  node.KillAgent(SIGTERM);
  EXPECT_THAT(node.AgentLog(), Not(HasSubstr("on 0 GPUs")));
}

}  // namespace
}  // namespace gpuloom
