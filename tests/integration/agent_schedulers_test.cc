// SPDX-License-Identifier: Apache-2.0
// Whom the replacement of a node's schedulers ends, and whom it does not: containers go on, and so does each of their processes that
// has asked nothing of CUDA yet. With the schedulers in a process of their own, as in the chart's pod.
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>

#include <utility>

#include "tests/fake_kubelet/allocation_report.h"
#include "tests/integration/agent_tenant_fixture.h"
#include "tests/integration/process.h"

namespace gpuloom {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AgentSchedulers : public AgentTenant {
 protected:
  std::vector<std::string> AgentArguments() const override { return {"--schedulers", "adopt"}; }
  void SetUp() override {
    StartSchedulers();
    AgentTenant::SetUp();
    container_ = Admit("team-a", "p");
  }
  void TearDown() override { EndSchedulers(); }

  void StartSchedulers() { schedulers_ = node_.StartFurtherAgent({"--schedulers", "only"}); }
  // As the kubelet does when their pod is deleted.
  void EndSchedulers() {
    const pid_t ended = std::exchange(schedulers_, 0);
    if (ended == 0) return;
    kill(ended, SIGTERM);
    EXPECT_EQ(waitpid(ended, nullptr, 0), ended);
  }
  void ReplaceSchedulers() {
    EndSchedulers();
    StartSchedulers();
    WaitUntilServed();
  }
  // Without PreStartContainer: nothing of the container is started anew.
  void WaitUntilServed() {
    EXPECT_TRUE(node_.WaitFor([&] {
      const auto state = AskScheduler(container_);
      return state.has_value() && state->bound == 1;
    })) << node_.AgentLog();
  }
  testing::Process Start(const std::string& script) const {
    return testing::Process({"/bin/sh", "-c", script, GPULOOM_TENANT}, Environment(container_));
  }
  std::string Tenants() const {
    int status = -1;
    const std::string table = node_.RunGpuloom({"tenants"}, &status);
    EXPECT_EQ(status, 0) << table;
    return table;
  }

  FakeContainer container_;
  pid_t schedulers_ = 0;
};

TEST_F(AgentSchedulers, AProcessThatHasNotAskedCudaAnythingNoticesNothing) {
  testing::Process process = Start("exec \"$0\" later vadd");
  ASSERT_TRUE(process.ReadLine("waits").has_value());
  EXPECT_THAT(Tenants(), HasSubstr("no process"));
  ReplaceSchedulers();
  process.WriteLine("begin");
  EXPECT_TRUE(process.ReadLine("pass vadd").has_value()) << process.output() << node_.AgentLog();
  EXPECT_EQ(process.ExitStatus(), 0);
}

TEST_F(AgentSchedulers, AContainerWhoseCudaProcessHasEndedStartsAnother) {
  testing::Process shell = Start("\"$0\" vadd && echo ended && read line && \"$0\" vadd");
  ASSERT_TRUE(shell.ReadLine("ended").has_value()) << shell.output();
  EXPECT_TRUE(node_.WaitFor([&] { return AskScheduler(container_)->sessions == 0; }));
  EXPECT_THAT(Tenants(), HasSubstr("no process"));
  ReplaceSchedulers();
  shell.WriteLine("again");
  EXPECT_TRUE(shell.ReadLine("pass vadd").has_value()) << shell.output() << node_.AgentLog();
  EXPECT_EQ(shell.ExitStatus(), 0);
}

TEST_F(AgentSchedulers, ASuspensionEndsWithThem) {
  int status = -1;
  (void)node_.RunGpuloom({"suspend", "team-a/p"}, &status);
  EXPECT_EQ(status, 0);
  EXPECT_THAT(Tenants(), HasSubstr("suspended"));
  ReplaceSchedulers();
  EXPECT_THAT(Tenants(), Not(HasSubstr("suspended")));
}

TEST_F(AgentSchedulers, AnIdleProcessWithAContextGetsItsErrorAndTheNextOneComputes) {
  testing::Process idle = Start("exec \"$0\" watch 2>&1");
  ASSERT_TRUE(idle.ReadLine("ready").has_value()) << idle.output();
  EXPECT_THAT(Tenants(), Not(HasSubstr("no process")))
      << "PROCESSES and STATE tell who would lose something";
  ReplaceSchedulers();
  idle.WriteLine("go on");
  // CUDA_ERROR_LAUNCH_FAILED, as docs/tenant-process.md has it.
  EXPECT_TRUE(idle.ReadLine("error 719").has_value()) << idle.output();
  EXPECT_EQ(idle.ExitStatus(), 0);
  EXPECT_THAT(
      idle.output(),
      HasSubstr(
          "gpuloom: session lost: the executor or its scheduler has ended; every CUDA call of this "
          "process returns error 719 from here on, restart it"));
  const Ran next = Run(container_, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(next.result.exit_code, 0) << next.output << node_.AgentLog();
}

TEST_F(AgentSchedulers, WhoComesWhileThereIsNoneHasNoGpuAndMayComeAgain) {
  EndSchedulers();
  const Ran early = Run(container_, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(early.result.exit_code, 1);
  EXPECT_THAT(early.output, HasSubstr("gpuloom: no GPU: cannot connect to "));
  EXPECT_THAT(early.output, HasSubstr("failed cuInit 100"));
  StartSchedulers();
  WaitUntilServed();
  const Ran again = Run(container_, "gpuloom-tenant", {"vadd"});
  EXPECT_EQ(again.result.exit_code, 0) << again.output << node_.AgentLog();
}

}  // namespace
}  // namespace gpuloom
