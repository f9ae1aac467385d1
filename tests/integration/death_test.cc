// SPDX-License-Identifier: Apache-2.0
// Every process is killed at some point, and what ends badly ends alone: tenants get an error, usage
// returns to the byte, the next tenant is served, no process is left.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/stack.h"

namespace gpuloom::testing {
namespace {

constexpr int kIllegalAddress = 700;
constexpr int kLaunchFailed = 719;

// "error CODE MILLISECONDS" of the `watch` habit.
struct Seen {
  int code = 0;
  double milliseconds = 1e9;
};

class Death : public ::testing::Test {
 protected:
  explicit Death(Stack::Options options = {}) : stack_(std::move(options)) {}
  void TearDown() override { EXPECT_TRUE(stack_.Ended()) << "a process was left"; }

  Process Watcher(const Allocation& allocation) {
    Process tenant = stack_.Tenant(allocation, {"watch"});
    EXPECT_TRUE(tenant.ReadLine("ready")) << tenant.output();
    tenant.WriteLine("go");
    return tenant;
  }
  static Seen ErrorOf(Process& tenant) {
    Seen seen;
    const auto line = tenant.ReadLine("error");
    EXPECT_TRUE(line) << tenant.output();
    if (line) std::sscanf(line->c_str(), "error %d %lf", &seen.code, &seen.milliseconds);
    EXPECT_EQ(tenant.ExitStatus(), 0);
    return seen;
  }
  void ExpectServed(const Allocation& allocation) {
    Process tenant = stack_.Tenant(allocation, {"vadd"});
    EXPECT_EQ(tenant.ExitStatus(), 0) << tenant.output();
  }

  Stack stack_;
  Allocation a_ = stack_.Allocate({.pod = "a", .domain = "one"});
  Allocation b_ = stack_.Allocate({.pod = "b", .domain = "one"});
  Allocation c_ = stack_.Allocate({.pod = "c", .domain = "two"});
};

TEST_F(Death, TenantKilledWhileItHolds) {
  Process tenant = stack_.Tenant(a_, {"hold", "40"});
  ASSERT_TRUE(tenant.ReadLine("ready"));
  EXPECT_GE(stack_.State(a_).memory_used_bytes, 40 * kMiB);
  tenant.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(a_));
  ExpectServed(a_);
}

TEST_F(Death, TenantKilledWhileItsKernelRuns) {
  Process tenant = stack_.Tenant(a_, {"spin", "0.5"});
  ASSERT_TRUE(tenant.ReadLine("running"));
  tenant.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(a_));
  ExpectServed(a_);
  ExpectServed(b_);
}

TEST_F(Death, TenantKilledWhileItsGraphWaitsForIt) {
  Process neighbour = stack_.Tenant(b_, {"bystander"});
  ASSERT_TRUE(neighbour.ReadLine("ready"));
  Process tenant = stack_.Tenant(a_, {"graph"});
  ASSERT_TRUE(tenant.ReadLine("running")) << tenant.output();
  tenant.Signal(SIGKILL);
  EXPECT_TRUE(stack_.BackToNothing(a_));
  // Of the same executor, which it would have lost had the graph not ended.
  neighbour.WriteLine("go");
  EXPECT_TRUE(neighbour.ReadLine("slowest")) << neighbour.output();
  ExpectServed(a_);
  neighbour.CloseInput();
}

// At moments that nobody chose: during the handshake, while loading, while copying.
TEST_F(Death, TenantKilledAtManyMoments) {
  Process neighbour = stack_.Tenant(b_, {"bystander"});
  ASSERT_TRUE(neighbour.ReadLine("ready"));
  for (int i = 0; i < 25; ++i) {
    Process tenant = stack_.Tenant(a_, {"vadd"});
    std::this_thread::sleep_for(std::chrono::microseconds(400 * i));
    tenant.Signal(SIGKILL);
    EXPECT_TRUE(tenant.Wait());
  }
  EXPECT_TRUE(stack_.BackToNothing(a_));
  neighbour.WriteLine("go");
  EXPECT_TRUE(neighbour.ReadLine("slowest")) << neighbour.output();
  ExpectServed(a_);
  neighbour.CloseInput();
}

TEST_F(Death, ExecutorKilled) {
  Process first = Watcher(a_), second = Watcher(b_), elsewhere = Watcher(c_);
  const pid_t executor = stack_.ExecutorOf("one");
  ASSERT_GT(executor, 0);
  ASSERT_EQ(kill(executor, SIGKILL), 0);
  EXPECT_EQ(ErrorOf(first).code, kLaunchFailed);
  EXPECT_EQ(ErrorOf(second).code, kLaunchFailed);
  EXPECT_TRUE(stack_.BackToNothing(a_));
  EXPECT_TRUE(stack_.BackToNothing(b_));
  ExpectServed(a_);
  // The other domain has seen nothing.
  EXPECT_FALSE(elsewhere.ReadLine("error", Milliseconds(50)));
  EXPECT_EQ(stack_.State(c_).sessions, 1u);
}

// What was at the device is lost, but whoever touches it does not wait for it.
TEST_F(Death, ExecutorKilledWhileManagedMemoryIsAway) {
  Process tenant = stack_.Tenant(a_, {"managed", "8"});
  ASSERT_TRUE(tenant.ReadLine("ready")) << tenant.output();
  const pid_t executor = stack_.ExecutorOf("one");
  ASSERT_GT(executor, 0);
  ASSERT_EQ(kill(executor, SIGKILL), 0);
  EXPECT_TRUE(stack_.BackToNothing(a_));
  tenant.WriteLine("go");
  EXPECT_TRUE(tenant.ReadLine("touched")) << tenant.output();
  EXPECT_EQ(tenant.ExitStatus(), 0);
  ExpectServed(a_);
}

TEST_F(Death, SchedulerKilled) {
  Process first = Watcher(a_), second = Watcher(c_);
  stack_.scheduler().Signal(SIGKILL);
  EXPECT_NE(ErrorOf(first).code, 0);
  EXPECT_NE(ErrorOf(second).code, 0);
  EXPECT_TRUE(stack_.scheduler().Wait());
  stack_.client().Close();
  EXPECT_TRUE(NoChildrenLeft(kPatience)) << "an executor outlived its scheduler";

  // A new one takes its place and is told the same again, as the agent does.
  stack_.StartScheduler();
  const Allocation again = stack_.Allocate({.pod = "a", .domain = "one"});
  ExpectServed(again);
}

TEST_F(Death, FaultEndsItsDomainOnly) {
  Process neighbour = Watcher(b_), elsewhere = Watcher(c_);
  Process culprit = stack_.Tenant(a_, {"fault"});
  const auto line = culprit.ReadLine("fault");
  ASSERT_TRUE(line) << culprit.output();
  EXPECT_EQ(*line, "fault " + std::to_string(kIllegalAddress));
  EXPECT_EQ(culprit.ExitStatus(), 0);
  EXPECT_EQ(ErrorOf(neighbour).code, kIllegalAddress);
  EXPECT_FALSE(elsewhere.ReadLine("error", Milliseconds(50)));
  EXPECT_TRUE(stack_.BackToNothing(a_));
  EXPECT_TRUE(stack_.BackToNothing(b_));
  ExpectServed(a_);
  ExpectServed(b_);
}

constexpr int kLaunchTimeout = 702;

TEST_F(Death, AKernelThatRunsForTooLongEndsItsDomainOnly) {
  Process neighbour = Watcher(b_), elsewhere = Watcher(c_);
  Process culprit = stack_.Tenant(a_, {"spin", "600"});
  ASSERT_TRUE(culprit.ReadLine("running"));
  // Of what runs already.
  stack_.Bind(a_, {.pod = "a", .domain = "one", .kernels = {0, 1000}});
  // Beside others' turns.
  while (stack_.State(a_).sessions != 0) ExpectServed(c_);
  EXPECT_NE(culprit.ExitStatus(), 0);
  EXPECT_NE(culprit.output().find("cuCtxSynchronize " + std::to_string(kLaunchTimeout)),
            std::string::npos)
      << culprit.output();
  EXPECT_EQ(ErrorOf(neighbour).code, kLaunchFailed);
  EXPECT_FALSE(elsewhere.ReadLine("error", Milliseconds(50)));
  EXPECT_TRUE(stack_.BackToNothing(a_));
  EXPECT_EQ(stack_.State(a_).faults[static_cast<size_t>(control::Fault::kLongKernel)], 1u);
  EXPECT_EQ(stack_.State(a_).long_kernels, 1u);
  EXPECT_EQ(stack_.State(b_).faults[static_cast<size_t>(control::Fault::kLostExecutor)], 1u);
  ExpectServed(a_);
  ExpectServed(b_);
}

TEST_F(Death, AKernelThatIsOnlyToldOfEndsNobody) {
  stack_.Bind(a_, {.pod = "a", .domain = "one", .kernels = {1000, 0}});
  Process neighbour = Watcher(b_);
  Process culprit = stack_.Tenant(a_, {"busy"});
  ASSERT_TRUE(culprit.ReadLine("running"));
  // Whoever shares its domain and loads code waits for it.
  while (stack_.State(a_).long_kernels == 0) ExpectServed(c_);
  EXPECT_FALSE(neighbour.ReadLine("error", Milliseconds(50)));
  culprit.WriteLine("enough");
  EXPECT_EQ(culprit.ExitStatus(), 0) << culprit.output();
  EXPECT_EQ(stack_.State(b_).long_kernels, 0u);
}

class DeathByDrain : public Death {
 protected:
  static constexpr std::chrono::seconds kDrainTimeout{3};
  DeathByDrain() : Death({.drain_timeout = "3s"}) {}
};

// A kernel that never ends: after drainTimeout the domain loses its executor, and only it.
TEST_F(DeathByDrain, EndlessKernelCostsItsDomainTheExecutor) {
  Process neighbour = Watcher(b_), elsewhere = Watcher(c_);
  // The executor counts from the beginning of its ring thread's round, which may be earlier than the end of the input, but
  // is later than this.
  const auto begin = std::chrono::steady_clock::now();
  Process culprit = stack_.Tenant(a_, {"endless"});
  ASSERT_TRUE(culprit.ReadLine("running"));
  const pid_t executor = stack_.ExecutorOf("one");
  culprit.CloseInput();
  ASSERT_EQ(culprit.ExitStatus(), 0);
  EXPECT_EQ(ErrorOf(neighbour).code, kLaunchFailed);
  EXPECT_GE(std::chrono::steady_clock::now() - begin, kDrainTimeout)
      << "its domain goes on till then";
  EXPECT_TRUE(stack_.BackToNothing(a_));
  EXPECT_TRUE(stack_.BackToNothing(b_));
  EXPECT_FALSE(elsewhere.ReadLine("error", Milliseconds(50)));
  ExpectServed(a_);
  EXPECT_NE(stack_.ExecutorOf("one"), executor);
}

// An executor is another user than the scheduler, which has little more than the right to end it.
TEST(DeathWithTheChartsRights, EndlessKernelCostsItsDomainTheExecutor) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, which the chart's containers are";
  Stack stack({.drain_timeout = "1s", .has_charts_rights = true});
  const Allocation a = stack.Allocate({.pod = "a", .domain = "one"});
  Process culprit = stack.Tenant(a, {"endless"});
  ASSERT_TRUE(culprit.ReadLine("running"));
  const pid_t executor = stack.ExecutorOf("one");
  EXPECT_NE(UserOf(executor), 0u);
  culprit.CloseInput();
  ASSERT_EQ(culprit.ExitStatus(), 0);
  EXPECT_TRUE(stack.BackToNothing(a));
  EXPECT_TRUE(Eventually([&] { return kill(executor, 0) != 0; })) << "it is still there";
  EXPECT_EQ(stack.Tenant(a, {"vadd"}).ExitStatus(), 0);
  EXPECT_TRUE(stack.Ended()) << "a process was left";
}

// Whoever has taken over an executor does not hear that the scheduler is gone, or does not care.
TEST(DeathOfTheScheduler, EndsExecutorsThatDoNotHearOfIt) {
  Stack stack;
  const Allocation a = stack.Allocate({.domain = "one"});
  Process tenant = stack.Tenant(a, {"hold", "2"});
  ASSERT_TRUE(tenant.ReadLine("ready"));
  const pid_t executor = stack.ExecutorOf("one");
  ASSERT_GT(executor, 0);
  ASSERT_EQ(kill(executor, SIGSTOP), 0);
  stack.scheduler().Signal(SIGKILL);
  EXPECT_TRUE(stack.scheduler().Wait());
  EXPECT_TRUE(Eventually([&] {
    while (waitpid(-1, nullptr, WNOHANG) > 0) {
    }
    return kill(executor, 0) != 0;
  }));
  tenant.CloseInput();
}

// The driver's compiler cannot be stopped, and nobody waits for it: what the tenant had is free at once,
// and its domain goes on, also when the compilation takes far longer than a session has to drain.
TEST(DeathBesideTheCompiler, TenantKilledWhileItsTextIsCompiled) {
  Stack stack({.drain_timeout = "1s", .compile_seconds_per_mib = "8"});
  const Allocation a = stack.Allocate({.pod = "a", .domain = "one"});
  const Allocation b = stack.Allocate({.pod = "b", .domain = "one"});
  Process neighbour = stack.Tenant(b, {"bystander"});
  ASSERT_TRUE(neighbour.ReadLine("ready")) << neighbour.output();
  const pid_t executor = stack.ExecutorOf("one");
  Process tenant = stack.Tenant(a, {"compile", "1"});
  ASSERT_TRUE(tenant.ReadLine("compiling")) << tenant.output();
  EXPECT_FALSE(tenant.ReadLine("done", Milliseconds(1000)));
  tenant.Signal(SIGKILL);
  EXPECT_TRUE(stack.BackToNothing(a));
  for (int i = 0; i < 3; ++i) {
    neighbour.WriteLine("go");
    EXPECT_TRUE(neighbour.ReadLine("slowest")) << neighbour.output();
  }
  Process next = stack.Tenant(a, {"vadd"});
  EXPECT_EQ(next.ExitStatus(), 0) << next.output();
  EXPECT_EQ(stack.ExecutorOf("one"), executor);
  neighbour.CloseInput();
  EXPECT_EQ(neighbour.ExitStatus(), 0);
  EXPECT_TRUE(stack.Ended()) << "a process was left";
}

TEST_F(Death, EverybodyAtOnce) {
  std::vector<Process> tenants;
  for (const Allocation* allocation : {&a_, &b_, &c_, &a_, &b_, &c_}) {
    tenants.push_back(stack_.Tenant(*allocation, {"hold", "8"}));
  }
  for (Process& tenant : tenants) ASSERT_TRUE(tenant.ReadLine("ready")) << tenant.output();
  for (Process& tenant : tenants) tenant.Signal(SIGKILL);
  for (const Allocation* allocation : {&a_, &b_, &c_}) {
    EXPECT_TRUE(stack_.BackToNothing(*allocation));
    ExpectServed(*allocation);
  }
}

}  // namespace
}  // namespace gpuloom::testing
