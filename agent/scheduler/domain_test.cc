// SPDX-License-Identifier: Apache-2.0
// Trust domains that come and go, as namespaces do. What the scheduler still knows of one, it tells
// when the domain is there again.
#include <algorithm>

#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;

class DomainTest : public SchedulerTest {
 public:
  // Whole lives of a domain.
  void Serve(const std::string& name) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(Allocate(&client_, name, name)));
    EXPECT_EQ(tenant.Order('1'), 'k');
    Remove(name);
  }
  void LoseExecutorBeforeAllocation(const std::string& name) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(Allocate(&client_, name, name)));
    tenant.SendByte('x');
    EXPECT_TRUE(tenant.HungUp());
    EXPECT_TRUE(ExecutorsEnd());
    Remove(name);
  }
  void EndSessionAfterAllocation(const std::string& name) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(Allocate(&client_, name, name)));
    EXPECT_EQ(tenant.Order('s'), 'k');
    Remove(name);
    EXPECT_TRUE(tenant.HungUp());
    EXPECT_EQ(tenant.Order('1'), 'k');
    EXPECT_EQ(Gpu().sessions, 1u);
    tenant.SendByte('T');
  }
  void FailToStart(const std::string& name) {
    SetExecutorStart("refuse");
    Tenant tenant;
    EXPECT_TRUE(tenant.Attach(Allocate(&client_, name, name)));
    EXPECT_FALSE(tenant.accepted());
    EXPECT_TRUE(ExecutorsEnd());
    SetExecutorStart("");
    Remove(name);
  }
  // Its only allocation goes on in another one.
  void BeLeft(const std::string& name) {
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(Allocate(&client_, name, name)));
    std::string error;
    EXPECT_TRUE(client_.BindAllocation(BindMessage(name, "the other one", kGiB), &error)) << error;
    tenant.Leave();
    EXPECT_TRUE(ExecutorsEnd());
    Remove(name);
  }

 protected:
  void Begin() {
    Start();
    client_ = Controller();
  }
  void Remove(const std::string& allocation) {
    std::string error;
    EXPECT_TRUE(client_.RemoveAllocation(allocation, &error)) << error;
  }
  control::GpuState Gpu() {
    control::GpuState gpu{};
    std::string error;
    EXPECT_TRUE(client_.DescribeGpu(&gpu, &domains_, &error)) << error;
    return gpu;
  }
  // But spare ones.
  [[nodiscard]] bool ExecutorsEnd() {
    return WaitFor([&] {
      return Gpu().sessions == 0 && std::ranges::all_of(domains_, [](const auto& domain) {
               return domain.executors == 0;
             });
    });
  }
  control::DomainState Known(const std::string& name) {
    Allocate(&client_, "asks", name);
    Gpu();
    Remove("asks");
    const auto known = std::ranges::find(domains_, name, [](auto& one) { return one.name; });
    EXPECT_NE(known, domains_.end());
    return known == domains_.end() ? control::DomainState{} : *known;
  }
  static bool IsForgotten(const control::DomainState& known) {
    return known.executors_started + known.executors_failed + known.executors_lost +
               known.busy.compute_ns ==
           0;
  }

  control::Client client_;
  std::vector<control::DomainState> domains_;
};

TEST_F(DomainTest, AllAreForgottenHoweverTheyEnd) {
  options_.domain_linger = milliseconds(0);
  Begin();
  using Life = void (DomainTest::*)(const std::string&);
  constexpr Life kLives[] = {&DomainTest::Serve, &DomainTest::LoseExecutorBeforeAllocation,
                             &DomainTest::EndSessionAfterAllocation, &DomainTest::FailToStart,
                             &DomainTest::BeLeft};
  std::vector<std::string> names = {"the other one"};
  for (int round = 0; round < 3; ++round) {
    for (const Life life : kLives) {
      names.push_back("domain-" + std::to_string(names.size()));
      (this->*life)(names.back());
      ASSERT_TRUE(ExecutorsEnd()) << names.back();
    }
  }
  EXPECT_EQ(Gpu().executors_started, names.size() - 1) << "the GPU's own figures go on";
  for (const std::string& name : names) EXPECT_TRUE(IsForgotten(Known(name))) << name;
}

TEST_F(DomainTest, ThoseThatHadSpareExecutorsAreForgotten) {
  options_.domain_linger = milliseconds(0);
  options_.spare_executors = 1;
  Begin();
  for (const char* name : {"a", "b", "c"}) {
    ASSERT_TRUE(WaitFor([&] { return Gpu().executors == 1; })) << "the spare one";
    name[0] == 'b' ? LoseExecutorBeforeAllocation(name) : Serve(name);
    ASSERT_TRUE(ExecutorsEnd());
  }
  for (const char* name : {"a", "b", "c"}) EXPECT_TRUE(IsForgotten(Known(name))) << name;
}

TEST_F(DomainTest, OneThatComesBackSoonGoesOn) {
  Begin();
  Serve("a");
  ASSERT_TRUE(ExecutorsEnd());
  FailToStart("a");
  const control::DomainState known = Known("a");
  EXPECT_EQ(known.executors_started, 2u);
  EXPECT_EQ(known.executors_failed, 1u);
  EXPECT_GT(known.busy.compute_ns, 0u);
}

TEST_F(DomainTest, TheyAreForgottenAlthoughNothingElseHappens) {
  options_.domain_linger = milliseconds(20);
  Begin();
  FailToStart("a");
  // Asking keeps it: ask ever more rarely.
  milliseconds pause(40);
  EXPECT_TRUE(WaitFor([&] {
    const auto until = EventLoop::Clock::now() + (pause *= 2);
    EXPECT_TRUE(WaitFor([&] { return EventLoop::Clock::now() >= until; }));
    return IsForgotten(Known("a"));
  }));
}

}  // namespace
}  // namespace gpuloom::scheduler
