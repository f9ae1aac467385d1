// Launches by graphs against a driver that writes down what it is asked, and that refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/testing_driver.h"
#include "agent/executor/testing_peer.h"

namespace gpuloom::executor {
namespace {

using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

class ChainTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx)); }

  // Launches pile up behind a device that does nothing for a while.
  bool Burst(int launches) {
    TestingDriver::Hold();
    Ticket last{};
    for (int i = 0; i < launches; ++i) last = tenant_->LaunchPlain(0, 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    TestingDriver::Release();
    return tenant_->WaitDone(0, last);
  }
  static size_t Count(const std::vector<std::string>& calls, std::string_view what) {
    return static_cast<size_t>(
        std::count_if(calls.begin(), calls.end(),
                      [&](const std::string& call) { return call.starts_with(what); }));
  }
  // Until chains are there and used.
  bool BurstsGoByGraphs() {
    for (int i = 0; i < 200; ++i) {
      TestingDriver::TakeCalls();
      if (!Burst(640)) return false;
      const auto calls = TestingDriver::TakeCalls();
      if (Count(calls, "graph") >= 5 && Count(calls, "launch") < 320) return true;
    }
    return false;
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, true};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(ChainTest, WhatPilesUpGoesByGraphs) {
  EXPECT_TRUE(BurstsGoByGraphs());
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, NothingIsBatchedWhenThatIsTurnedOff) {
  TestingScheduler plain(driver_, false);
  auto tenant = plain.AddTenant();
  ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::TakeCalls();
  Ticket last{};
  for (int i = 0; i < 640; ++i) last = tenant->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant->WaitDone(0, last));
  EXPECT_EQ(Count(TestingDriver::TakeCalls(), "launch"), 640u);
}

TEST_F(ChainTest, WhatAGraphRefusesGoesPlainly) {
  ASSERT_TRUE(BurstsGoByGraphs());
  TestingDriver::RefuseGraphs(CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_TRUE(Burst(640));
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_EQ(Count(calls, "graph"), 0u);
  EXPECT_EQ(Count(calls, "launch"), 640u);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, AnotherSessionUsesWhatOneHasLeft) {
  ASSERT_TRUE(BurstsGoByGraphs());
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  tenant_ = scheduler_.AddTenant();
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_TRUE(BurstsGoByGraphs());
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, AttributesOfAKernelThatChangeAreNotForgottenByGraphs) {
  ASSERT_TRUE(BurstsGoByGraphs());
  ASSERT_EQ(tenant_->Call<wire::KernelSetAttribute>(
                {KernelId{1}, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096}),
            CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  // Every node that is used is set again, as soon as a burst goes by graphs.
  size_t updates = 0;
  for (int i = 0; i < 200 && updates <= 8; ++i) {
    ASSERT_TRUE(Burst(640));
    updates += Count(TestingDriver::TakeCalls(), "update");
  }
  EXPECT_GT(updates, 8u);
}

}  // namespace
}  // namespace gpuloom::executor
