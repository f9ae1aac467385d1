// SPDX-License-Identifier: Apache-2.0
// When an executor is started without full confinement (docs/design/taken-over-executor.md), and when it is not.
#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::scheduler {
namespace {

class LenientExecutorTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
  }

  // Whether a tenant of this domain, which comes and goes, got an executor.
  bool IsServed(const std::string& domain) {
    const std::string allocation = domain + std::to_string(allocations_++);
    Tenant tenant;
    EXPECT_TRUE(tenant.Attach(Allocate(&client_, allocation, domain)));
    const bool served = tenant.accepted();
    EXPECT_NE(served, tenant.welcome.message[0] != '\0') << tenant.welcome.message;
    tenant.Leave();
    EXPECT_TRUE(Becomes(&client_, allocation, [](const auto& s) { return s.sessions == 0; }));
    return served;
  }
  // Waits until a start is tried again after some that failed.
  bool IsServedInTheEnd(const std::string& domain) {
    return WaitFor([&] { return IsServed(domain); });
  }
  bool IsLenient(const std::string& domain) {
    control::GpuState gpu;
    std::vector<control::DomainState> domains;
    std::string error;
    EXPECT_TRUE(client_.DescribeGpu(&gpu, &domains, &error)) << error;
    for (const control::DomainState& state : domains) {
      if (domain == state.name) return state.executor_is_lenient != 0;
    }
    ADD_FAILURE() << "no domain " << domain;
    return false;
  }

  control::Client client_;
  int allocations_ = 0;
};

// The driver of another machine may need what ours does not.
TEST_F(LenientExecutorTest, ServesWhereTheDriverStartsInNoOther) {
  SetExecutorStart("strict");
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(IsServed("a"));
  EXPECT_TRUE(IsServed("a")) << "at once";
  const std::string log = ::testing::internal::GetCapturedStderr();
  const size_t line = log.find("): the driver does not start in a fully confined executor (");
  ASSERT_NE(line, log.npos) << log;
  EXPECT_NE(log.rfind("executor of domain a (pid ", line), log.npos) << log;
  EXPECT_TRUE(IsLenient("a"));
  // Tried once more: this time it is known that the GPU is well.
  EXPECT_FALSE(IsServed("b"));
  EXPECT_TRUE(IsServed("b"));
  EXPECT_TRUE(IsServed("c")) << "from now on";
  EXPECT_TRUE(IsLenient("c"));
}

// Without another domain nothing is known beside it.
TEST_F(LenientExecutorTest, ServesForGoodOnceTwoHaveServedBehindOthersThatFailed) {
  SetExecutorStart("strict");
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(IsServed("a"));
    Tenant tenant;
    ASSERT_TRUE(tenant.Attach(Allocate(&client_, "ends" + std::to_string(i), "a")));
    ASSERT_TRUE(tenant.accepted());
    tenant.SendByte('x');
    ASSERT_TRUE(tenant.HungUp());
  }
  EXPECT_TRUE(IsServed("a"));
  EXPECT_TRUE(IsLenient("a"));
}

TEST_F(LenientExecutorTest, IsTheOnlyOneAfterATroubleThatPasses) {
  SetExecutorStart("strict");
  EXPECT_FALSE(IsServed("a"));
  EXPECT_TRUE(IsServed("a"));
  SetExecutorStart("");
  EXPECT_TRUE(IsServed("b"));
  EXPECT_FALSE(IsLenient("b"));
  // And now it is known that the driver needs none.
  SetExecutorStart("strict");
  EXPECT_FALSE(IsServed("c"));
  EXPECT_FALSE(IsServed("c"));
}

TEST_F(LenientExecutorTest, IsNotStartedWhereOthersWereConfined) {
  EXPECT_TRUE(IsServed("a"));
  SetExecutorStart("strict");
  EXPECT_FALSE(IsServed("b"));
  EXPECT_FALSE(IsServed("b")) << "it would start leniently";
  SetExecutorStart("");
  EXPECT_TRUE(IsServedInTheEnd("b"));
  EXPECT_FALSE(IsLenient("b"));
}

TEST_F(LenientExecutorTest, IsNotTriedAgainWhereItDoesNotStartEither) {
  SetExecutorStart("no driver");
  EXPECT_FALSE(IsServed("a"));
  EXPECT_FALSE(IsServed("a"));
  SetExecutorStart("");
  EXPECT_TRUE(IsServedInTheEnd("a"));
  EXPECT_FALSE(IsLenient("a"));
}

}  // namespace
}  // namespace gpuloom::scheduler
