// SPDX-License-Identifier: Apache-2.0
// Limits of a kernel's time. The scripted executor says of its kernels that they have run for an hour; its part of the
// device's time, by the scheduler's own clock, is some milliseconds.
#include <gtest/gtest.h>

#include "agent/scheduler/testing/scheduler_fixture.h"

namespace gpuloom::scheduler {
namespace {

constexpr uint32_t kHourMs = 3'600'000;
constexpr auto kLongKernel = static_cast<size_t>(control::Fault::kLongKernel);
constexpr auto kLostExecutor = static_cast<size_t>(control::Fault::kLostExecutor);

class KernelTest : public SchedulerTest {
 protected:
  void SetUp() override {
    options_.drain_grace = std::chrono::milliseconds(100);
    Start();
    client_ = Controller();
  }

  std::string Bind(const std::string& name, const control::KernelTerms& kernels,
                   const std::string& domain = "domain") {
    const std::string directory = Add(&client_, name);
    Rebind(name, kernels, domain);
    return directory;
  }
  void Rebind(const std::string& name, const control::KernelTerms& kernels,
              const std::string& domain = "domain") {
    control::BindAllocation bind = BindMessage(name, domain, kGiB);
    bind.kernels = kernels;
    std::string error;
    EXPECT_TRUE(client_.BindAllocation(bind, &error)) << error;
  }
  // Says so until the scheduler counts it; its clock must get to a millisecond.
  bool BecomesLong(const std::string& name, Tenant* tenant, uint64_t kernels) {
    return Becomes(&client_, name, [&](const control::AllocationState& state) {
      EXPECT_EQ(tenant->Order('K'), 0);
      return state.long_kernels == kernels;
    });
  }

  control::Client client_;
};

TEST_F(KernelTest, OneThatRunsForLongIsCountedOnceAndGoesOn) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Bind("a", {1, 0})));
  EXPECT_TRUE(BecomesLong("a", &tenant, 1));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tenant.Order('K'), 0);
  EXPECT_EQ(State(&client_, "a").long_kernels, 1u);
  EXPECT_EQ(tenant.Order('D'), 0);
  EXPECT_TRUE(Becomes(&client_, "a", [&](const control::AllocationState& state) {
    EXPECT_EQ(tenant.Order('D'), 0);
    return state.long_kernels == 2;
  })) << "another kernel";
  EXPECT_EQ(State(&client_, "a").faults[kLongKernel], 0u);
}

TEST_F(KernelTest, OneThatMustEndCostsItsDomainTheExecutorAndNoOther) {
  const std::string culprits = Bind("a", {0, 1}), neighbours = Bind("b", {});
  Tenant culprit, neighbour, other;
  ASSERT_TRUE(culprit.Attach(culprits) && neighbour.Attach(neighbours) &&
              other.Attach(Bind("c", {0, 1}, "other")));
  int ends = 0;
  EXPECT_TRUE(Becomes(&client_, "a", [&](const control::AllocationState&) {
    if (ends == 0) ends = culprit.Order('K');
    return ends != 0;
  }));
  EXPECT_TRUE(culprit.HungUp() && neighbour.HungUp());
  EXPECT_TRUE(Becomes(&client_, "a",
                      [](const control::AllocationState& state) { return state.sessions == 0; }));
  EXPECT_EQ(State(&client_, "a").faults[kLongKernel], 1u);
  EXPECT_NE(std::string(State(&client_, "a").latest_fault).find("of maxKernelTime.end"),
            std::string::npos);
  EXPECT_EQ(State(&client_, "a").long_kernels, 1u);
  EXPECT_EQ(State(&client_, "b").faults[kLostExecutor], 1u);
  EXPECT_EQ(State(&client_, "b").faults[kLongKernel], 0u);
  EXPECT_EQ(other.Order('m'), 0);
  ExpectServed(culprits);
  ExpectServed(neighbours);
}

TEST_F(KernelTest, Malicious_AnExecutorThatDoesNotEndIsEnded) {
  const std::string directory = Bind("a", {0, 1});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.Order('Z'), 'k');
  int ends = 0;
  EXPECT_TRUE(Becomes(&client_, "a", [&](const control::AllocationState&) {
    if (ends == 0) ends = tenant.Order('K');
    return ends != 0;
  }));
  EXPECT_TRUE(tenant.HungUp());
  ExpectServed(directory);
}

TEST_F(KernelTest, Malicious_NobodysKernelRanForLongerThanItsExecutorHadOfTheDevice) {
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(Bind("a", {kHourMs, kHourMs})));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(tenant.Order('K'), 0);
  EXPECT_EQ(State(&client_, "a").long_kernels, 0u);
}

TEST_F(KernelTest, Malicious_AnExecutorSpeaksForItsOwnSessionsOnly) {
  Tenant tenant, honest;
  ASSERT_TRUE(tenant.Attach(Bind("a", {}, "one")) && honest.Attach(Bind("b", {1, 1}, "other")));
  // Whoever has no limit.
  for (int i = 0; i < 10; ++i) EXPECT_EQ(tenant.Order('K'), 0);
  EXPECT_EQ(State(&client_, "a").long_kernels, 0u);
  EXPECT_EQ(State(&client_, "b").long_kernels, 0u);
  EXPECT_EQ(honest.Order('m'), 0);
}

TEST_F(KernelTest, ALimitChangesForWhatRuns) {
  const std::string directory = Bind("a", {});
  Tenant tenant;
  ASSERT_TRUE(tenant.Attach(directory));
  EXPECT_EQ(tenant.OrderForNumber('z'), 0u);
  Rebind("a", {0, kHourMs});
  EXPECT_EQ(tenant.OrderForNumber('z'), kHourMs);
  EXPECT_EQ(State(&client_, "a").kernels, (control::KernelTerms{0, kHourMs}));
  EXPECT_EQ(tenant.Order('K'), 0);
  EXPECT_EQ(State(&client_, "a").long_kernels, 0u);
  Rebind("a", {1, 0});
  EXPECT_TRUE(BecomesLong("a", &tenant, 1));
  Tenant late;
  ASSERT_TRUE(late.Attach(directory));
  Rebind("a", {0, 500});
  EXPECT_EQ(late.OrderForNumber('z'), 500u);
}

TEST_F(KernelTest, LimitsThatCannotBeAreRefused) {
  Add(&client_, "a");
  for (const control::KernelTerms& kernels :
       {control::KernelTerms{kHourMs + 1, 0}, control::KernelTerms{0, kHourMs + 1}}) {
    control::BindAllocation bind = BindMessage("a", "domain", kGiB);
    bind.kernels = kernels;
    std::string error;
    EXPECT_FALSE(client_.BindAllocation(bind, &error));
    EXPECT_THAT(error, ::testing::HasSubstr("limits of a kernel's time are an hour at most"));
  }
  EXPECT_EQ(State(&client_, "a").bound, 0u);
}

}  // namespace
}  // namespace gpuloom::scheduler
