// SPDX-License-Identifier: Apache-2.0
// Executors that are ready before anybody needs them.
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::Not;

// When it began, and of those that began at once the one with the higher number: numbers begin anew from time to time.
std::pair<uint64_t, pid_t> AgeOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  // Field 22 in proc(5), the 20th behind the name, which may hold anything.
  std::istringstream rest(text.substr(std::min(text.rfind(')') + 1, text.size())));
  std::string field;
  for (int i = 0; i < 20; ++i) rest >> field;
  return {field.empty() ? 0 : std::stoull(field), pid};
}

class SpareTest : public SchedulerTest {
 protected:
  SpareTest() { options_.spare_executors = 1; }

  // Waits until there are so many executors; returns the newest.
  static pid_t Newest(size_t executors) {
    std::vector<pid_t> all;
    EXPECT_TRUE(WaitFor([&] { return (all = Children()).size() == executors; })) << all.size();
    return all.empty() ? 0 : *std::ranges::max_element(all, {}, AgeOf);
  }
  static pid_t ExecutorOf(Tenant* tenant) {
    return static_cast<pid_t>(tenant->OrderForNumber('p'));
  }
};

TEST_F(SpareTest, ANewDomainGetsItAndAnotherIsMadeBehindIt) {
  Start();
  const pid_t first = Newest(1);
  control::Client client = Controller();
  Tenant a, b;
  ASSERT_TRUE(a.Attach(Allocate(&client, "a", "team-a")));
  EXPECT_EQ(ExecutorOf(&a), first);
  const pid_t second = Newest(2);
  ASSERT_TRUE(b.Attach(Allocate(&client, "b", "team-b")));
  EXPECT_EQ(ExecutorOf(&b), second);
  (void)Newest(3);
  // It serves its domain only.
  Tenant more;
  ASSERT_TRUE(more.Attach(Allocate(&client, "c", "team-a")));
  EXPECT_EQ(ExecutorOf(&more), first);
  EXPECT_EQ(Children().size(), 3u);
}

TEST_F(SpareTest, ItIsNobodysBeforeItIsTaken) {
  Start();
  (void)Newest(1);
  control::Client client = Controller();
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a")));
  (void)Newest(2);
  EXPECT_EQ(tenant.OrderForNumber('/'), 3u) << "alone on the device: nobody speaks of turns";
  std::string error;
  std::vector<control::DomainState> domains;
  control::GpuState gpu{};
  ASSERT_TRUE(client.DescribeGpu(&gpu, &domains, &error)) << error;
  ASSERT_EQ(domains.size(), 1u);
  EXPECT_STREQ(domains[0].name, "team-a");
  EXPECT_EQ(domains[0].executors, 1u);
  EXPECT_EQ(domains[0].executors_started, 1u);
  Tenant other;
  ASSERT_TRUE(other.Attach(Allocate(&client, "b", "team-b")));
  EXPECT_NE(tenant.OrderForNumber('/'), 3u) << "two that are to take turns";
  EXPECT_NE(other.OrderForNumber('/'), 3u);
}

TEST_F(SpareTest, ADomainWhoseExecutorHasDiedGetsIt) {
  Start();
  (void)Newest(1);
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const pid_t spare = Newest(2);
  tenant.SendByte('x');
  EXPECT_TRUE(tenant.HungUp());
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(ExecutorOf(&tenant), spare);
}

TEST_F(SpareTest, Malicious_ADomainWhoseExecutorsDieAgainAndAgainLeavesItToOthers) {
  Start();
  (void)Newest(1);
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  for (int i = 0; i < 2; ++i) {
    Tenant hostile;
    ASSERT_TRUE(hostile.Attach(directory));
    const pid_t dies = ExecutorOf(&hostile);
    (void)Newest(2);
    hostile.SendByte('x');
    ASSERT_TRUE(hostile.HungUp());
    // Until then it is a child like the others.
    ASSERT_TRUE(WaitFor([&] { return kill(dies, 0) != 0; }));
  }
  const pid_t spare = Newest(1);
  Tenant hostile;
  ASSERT_TRUE(hostile.Attach(directory));
  EXPECT_NE(ExecutorOf(&hostile), spare);
  Tenant honest;
  ASSERT_TRUE(honest.Attach(Allocate(&client, "b", "team-b")));
  EXPECT_EQ(ExecutorOf(&honest), spare);
}

TEST_F(SpareTest, TenantsThatNeedItsMemoryGetIt) {
  Start();
  (void)Newest(1);
  control::Client client = Controller();
  const std::string directory = Allocate(&client, "a", "team-a");
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  const pid_t spare = Newest(2);
  device_.room_bytes = 0;
  EXPECT_EQ(tenant.Order('m'), 2) << "it was not enough";
  EXPECT_THAT(Children(), Not(Contains(spare)));
  EXPECT_GE(device_.tries, 3) << "also after its end";
  device_.room_bytes = UINT64_MAX;
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(Children().size(), 1u) << "none is started for a while";
  ExpectServed(Allocate(&client, "b", "team-b"));
}

TEST_F(SpareTest, OneThatFailsIsTriedAgain) {
  SetExecutorStart("die");
  Start();
  control::Client client = Controller();
  std::string error;
  control::GpuState gpu{};
  std::vector<control::DomainState> domains;
  ASSERT_TRUE(WaitFor([&] {
    EXPECT_TRUE(client.DescribeGpu(&gpu, &domains, &error)) << error;
    return gpu.executors_failed != 0;
  }));
  SetExecutorStart("");
  const pid_t spare = Newest(1);
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Allocate(&client, "a", "team-a")));
  EXPECT_EQ(ExecutorOf(&tenant), spare);
}

TEST_F(SpareTest, ASchedulerThatIsNoLongerUsedEndsWithIt) {
  options_.exit_when_unused = true;
  Start();
  (void)Newest(1);
  {
    control::Client client = Controller();
    const std::string directory = Add(&client, "a", /*ends_with_connection=*/true);
    std::string error;
    ASSERT_TRUE(client.BindAllocation(BindMessage("a", "team-a", kGiB), &error)) << error;
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(directory));
    (void)Newest(2);
  }
  EXPECT_TRUE(EndsWithin(seconds(60)));
}

}  // namespace
}  // namespace gpuloom::scheduler
