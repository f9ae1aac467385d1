// SPDX-License-Identifier: Apache-2.0
// What a session keeps of the memory that its tenant has freed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/memory/device_space.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using ::testing::Not;
using wire::DevicePtr;

class KeptMemoryOfSession : public ::testing::Test {
 protected:
  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(KeptMemoryOfSession, FreedMemoryIsTakenUpAgainWithoutTheScheduler) {
  scheduler_.must_clear = true;
  const uint64_t first = tenant_->Alloc(4u << 20);
  ASSERT_NE(first, 0u);
  tenant_->Post<wire::MemFreeLater>({DevicePtr{first}});
  (void)TestingDriver::TakeCalls();
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(tenant_->Alloc((4u << 20) - 5), first);
    EXPECT_EQ(tenant_->Free(first), CUDA_SUCCESS);
    EXPECT_EQ(tenant_->Free(first), CUDA_ERROR_INVALID_VALUE);
  }
  EXPECT_TRUE(TestingDriver::TakeCalls().empty()) << "nothing is mapped or cleared again";
  EXPECT_EQ(scheduler_.memory_in_use(), 4u << 20);
  const uint64_t other = tenant_->Alloc(2u << 20);
  EXPECT_NE(other, 0u);
  EXPECT_NE(other, first);
  EXPECT_EQ(scheduler_.memory_in_use(), 6u << 20);
}

TEST_F(KeptMemoryOfSession, PhysicalMemoryIsTakenUpAgain) {
  scheduler_.must_clear = true;
  ASSERT_EQ(tenant_->Call<wire::PhysicalCreate>({wire::PhysicalId{1}, 0, 2u << 20}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::PhysicalRelease>({wire::PhysicalId{1}}), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 2u << 20);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains(::testing::StartsWith("clear")));
  // By an id and as an allocation, in turn.
  for (uint32_t i = 0; i < 4; ++i) {
    ASSERT_EQ(tenant_->Call<wire::PhysicalCreate>({wire::PhysicalId{2}, 0, 2u << 20}),
              CUDA_SUCCESS);
    ASSERT_EQ(tenant_->Call<wire::PhysicalRelease>({wire::PhysicalId{2}}), CUDA_SUCCESS);
    const uint64_t memory = tenant_->Alloc(2u << 20);
    ASSERT_NE(memory, 0u);
    EXPECT_EQ(tenant_->Free(memory), CUDA_SUCCESS);
    EXPECT_EQ(scheduler_.memory_in_use(), 2u << 20);
  }
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains(::testing::StartsWith("clear"))));
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(KeptMemoryOfSession, WhatOthersHaveANameForIsNotKept) {
  const uint64_t memory = tenant_->Alloc(2u << 20);
  wire::MemExport::Reply exported{};
  ASSERT_EQ(tenant_->Call<wire::MemExport>({DevicePtr{memory}}, &exported), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Free(memory), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(KeptMemoryOfSession, WhatIsKeptForNothingGoesBackByItself) {
  const uint64_t memory = tenant_->Alloc(2u << 20);
  ASSERT_NE(memory, 0u);
  EXPECT_EQ(tenant_->Free(memory), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 2u << 20);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.memory_in_use() == 0; }));
}

TEST_F(KeptMemoryOfSession, EndReturnsWhatIsKept) {
  EXPECT_EQ(tenant_->Free(tenant_->Alloc(4u << 20)), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::PhysicalCreate>({wire::PhysicalId{1}, 0, 2u << 20}), CUDA_SUCCESS);
  ASSERT_EQ(tenant_->Call<wire::PhysicalRelease>({wire::PhysicalId{1}}), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 6u << 20);
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_)) << "an unknown session has nothing";
}

// The addresses of the range reach as far as twice a quota.
TEST(MemoryBeyondAddresses, IsRefusedByTheSchedulerOnce) {
  const Driver& driver = TestingDriver::Reset();
  TestingScheduler scheduler(driver);
  scheduler.quota_bytes = 4u << 20;
  const auto tenant = scheduler.AddTenant();
  uint64_t refused = 0;
  for (const uint64_t size_bytes :
       {tenant->order.device_own_bytes + 1, tenant->order.device_range_bytes + 1, UINT64_MAX}) {
    EXPECT_EQ(tenant->Call<wire::MemAlloc>({size_bytes}), CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_EQ(scheduler.refused_count, ++refused) << size_bytes;
  }
  EXPECT_EQ(scheduler.memory_in_use(), 0u);
}

TEST(MemoryBeyondAddresses, IsRefusedAlthoughTheQuotaHasBeenRaised) {
  const Driver& driver = TestingDriver::Reset();
  TestingScheduler scheduler(driver);
  scheduler.quota_bytes = 4u << 20;
  const auto tenant = scheduler.AddTenant();
  scheduler.quota_bytes = uint64_t{1} << 40;
  EXPECT_EQ(tenant->Call<wire::MemAlloc>({tenant->order.device_range_bytes + 1}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_TRUE(tenant->Wait([&] { return scheduler.memory_in_use() == 0; })) << "given back";
  EXPECT_EQ(scheduler.refused_count, 0u);
}

}  // namespace
}  // namespace gpuloom::executor
