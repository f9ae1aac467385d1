// SPDX-License-Identifier: Apache-2.0
// When executors are started, shared and ended.
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_F(SchedulerTest, ADomainSharesAnExecutorAndAnotherDoesNot) {
  Start();
  control::Client client = Controller();
  const std::string a = Allocate(&client, "a", "shared");
  const std::string b = Allocate(&client, "b", "shared");
  const std::string c = Allocate(&client, "c", "other");
  Tenant one, two, three;
  ASSERT_TRUE(one.Attach(a));
  ASSERT_TRUE(two.Attach(b));
  ASSERT_TRUE(three.Attach(c));
  EXPECT_EQ(one.OrderForNumber('p'), two.OrderForNumber('p'));
  EXPECT_NE(one.OrderForNumber('p'), three.OrderForNumber('p'));
}

TEST_F(SchedulerTest, APreparedExecutorIsThereBeforeTheFirstProgram) {
  Start();
  control::Client client = Controller();
  const auto before = Children();
  const std::string directory = Allocate(&client, "a", "team-a");
  std::string error;
  ASSERT_TRUE(client.PrepareExecutor("a", &error)) << error;
  EXPECT_TRUE(WaitFor([&] { return Children().size() != before.size(); }));
  const auto after = Children();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const auto pid = static_cast<pid_t>(tenant.OrderForNumber('p'));
  EXPECT_EQ(std::count(after.begin(), after.end(), pid), 1) << "another one serves it";
  // A second allocation of the domain needs no other.
  (void)Allocate(&client, "b", "team-a");
  EXPECT_TRUE(client.PrepareExecutor("b", &error)) << error;
  EXPECT_EQ(Children().size(), after.size());
  // Nor does one that nobody is bound to have any.
  (void)Add(&client, "c");
  EXPECT_FALSE(client.PrepareExecutor("c", &error));
  EXPECT_THAT(error, ::testing::HasSubstr("allocation c is not bound"));
  EXPECT_FALSE(client.PrepareExecutor("d", &error));
  EXPECT_TRUE(client.connected());
}

TEST_F(SchedulerTest, WhatIsOnlyRememberedStartsNoExecutor) {
  Start();
  control::Client client = Controller();
  const auto before = Children();
  std::string directory;
  for (int i = 0; i < 8; ++i) {
    const std::string name = "pod-" + std::to_string(i);
    directory = Allocate(&client, name, name);
  }
  EXPECT_EQ(Children().size(), before.size());
  // Whoever attaches after all has one started.
  ExpectServed(directory);
  EXPECT_EQ(Children().size(), before.size() + 1);
}

TEST_F(SchedulerTest, AnExecutorWhoseDomainHasNoAllocationLeftEndsAtOnce) {
  options_.idle_timeout = seconds(600);
  Start();
  control::Client client = Controller();
  const std::string first = Allocate(&client, "a", "team-a");
  const std::string second = Allocate(&client, "b", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(first));
  const auto pid = static_cast<pid_t>(tenant.OrderForNumber('p'));
  ASSERT_GT(pid, 1);
  std::string error;
  ASSERT_TRUE(client.RemoveAllocation("a", &error)) << error;
  EXPECT_TRUE(tenant.HungUp());
  // The other allocation of the domain may still be used.
  ASSERT_TRUE(tenant.Attach(second));
  EXPECT_EQ(static_cast<pid_t>(tenant.OrderForNumber('p')), pid);
  tenant.Leave();
  EXPECT_TRUE(Becomes(&client, "b", [](const auto& state) { return state.sessions == 0; }));
  ASSERT_TRUE(client.RemoveAllocation("b", &error)) << error;
  EXPECT_TRUE(WaitFor([&] { return kill(pid, 0) != 0; })) << "the executor is still there";
}

TEST_F(SchedulerTest, AnIdleExecutorEndsAndAnotherIsStarted) {
  options_.idle_timeout = milliseconds(50);
  Start();
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const auto pid = static_cast<pid_t>(tenant.OrderForNumber('p'));
  ASSERT_GT(pid, 1);
  tenant.Leave();
  EXPECT_TRUE(WaitFor([&] { return kill(pid, 0) != 0; })) << "the executor is still there";
  ExpectServed(directory);
}

}  // namespace
}  // namespace gpuloom::scheduler
