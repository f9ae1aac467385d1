// SPDX-License-Identifier: Apache-2.0
// Sessions that the scheduler holds, in the real loop, with a driver that needs no GPU.
#include <gtest/gtest.h>

#include <chrono>

#include "agent/executor/testing/tenant_test_fixture.h"
#include "proto/sync/testing/passing_time.h"

namespace gpuloom::executor {
namespace {

using wire::Ticket;

using HoldTest = TenantTest;

TEST_F(HoldTest, NothingIsSubmittedUntilItIsResumed) {
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  (void)TestingDriver::TakeCalls();
  const Ticket last = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->Never([&] { return IsDone(*tenant_, last); }));
  EXPECT_FALSE(TestingDriver::WasCalled("launch") || TestingDriver::WasCalled("graph"));
  scheduler_.Hold(*tenant_, false);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(HoldTest, NeighboursGoOn) {
  const auto neighbour = AddTenant();
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
}

TEST_F(HoldTest, ItIsHeldOnceWhatIsAtTheDeviceHasEnded) {
  TestingDriver::Hold();
  const Ticket running = tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t hold = scheduler_.Hold(*tenant_, true);
  EXPECT_TRUE(tenant_->Never([&] { return scheduler_.WasHeld(hold); }));
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitHeld(hold));
  EXPECT_TRUE(IsDone(*tenant_, running));
}

TEST_F(HoldTest, AHoldThatIsTakenBackBeforeIsNeverAcknowledged) {
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("launch"); }));
  const uint32_t first = scheduler_.Hold(*tenant_, true);
  scheduler_.Hold(*tenant_, false);
  const uint32_t second = scheduler_.Hold(*tenant_, true);
  // The scheduler's answer comes behind the three.
  ASSERT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitHeld(second));
  EXPECT_FALSE(scheduler_.WasHeld(first));
}

TEST_F(HoldTest, ASessionCanBeginHeld) {
  scheduler_.begin_held = true;
  const auto late = AddTenant();
  EXPECT_TRUE(scheduler_.WaitHeld(0));
  const Ticket last = late->LaunchPlain(0, 1);
  EXPECT_TRUE(late->Never([&] { return IsDone(*late, last); }));
  scheduler_.Hold(*late, false);
  EXPECT_TRUE(late->WaitDone(0, last));
}

TEST_F(HoldTest, TheTimeInWhichWorkWaitsIsCounted) {
  const auto idle = AddTenant();
  // The ring thread counts from the beginning of its round, which for what follows is later.
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*idle, true)));
  const Ticket last = tenant_->LaunchPlain(0, 1);
  // It waits by then.
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  const auto waits = std::chrono::steady_clock::now();
  PassTime(std::chrono::milliseconds(50));
  const auto least = std::chrono::steady_clock::now() - waits;
  // The round that ends the hold begins behind this answer, which is the scheduler's.
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  scheduler_.Hold(*tenant_, false);
  scheduler_.Hold(*idle, false);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  const auto most = std::chrono::steady_clock::now() - begin;
  for (TestingTenant* tenant : {tenant_.get(), idle.get()}) tenant->doorbell.Reset();
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  const auto idle_ended = scheduler_.WaitEnded(idle->order.session_id);
  ASSERT_TRUE(ended.has_value() && idle_ended.has_value());
  const std::chrono::nanoseconds held(ended->time.held_ns);
  EXPECT_GE(held, least);
  EXPECT_LE(held, most);
  EXPECT_EQ(idle_ended->time.held_ns, 0u) << "nothing of it waited";
}

TEST_F(HoldTest, WhatWaitsInAHeldSessionIsReportedMeanwhile) {
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->Wait([&] { return scheduler_.CountersOf(*tenant_).time.held_ns != 0; }));
  scheduler_.Hold(*tenant_, false);
}

TEST_F(HoldTest, AQuietMomentDoesNotResumeIt) {
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  const Ticket last = tenant_->LaunchPlain(0, 1);
  // Loading and unloading need such moments.
  const auto neighbour = AddTenant();
  EXPECT_EQ(neighbour->Call<wire::LibraryUnload>({wire::LibraryId{1}}), CUDA_SUCCESS);
  EXPECT_TRUE(neighbour->Never([&] { return IsDone(*tenant_, last); }));
  scheduler_.Hold(*tenant_, false);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(HoldTest, AHeldSessionThatIsRemovedEnds) {
  ASSERT_NE(tenant_->Alloc(4u << 20), 0u);
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  for (int i = 0; i < 1000; ++i) tenant_->LaunchPlain(0, 1);
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(HoldTest, AHeldSessionWhoseTenantHangsUpEnds) {
  ASSERT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*tenant_, true)));
  for (int i = 0; i < 1000; ++i) tenant_->LaunchPlain(0, 1);
  tenant_->doorbell.Reset();
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
}

TEST_F(HoldTest, AHoldOfASessionThatIsNotThereIsIgnored) {
  TestingTenant nobody;
  nobody.order.session_id = 12345;
  const uint32_t hold = scheduler_.Hold(nobody, true);
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  EXPECT_FALSE(scheduler_.WasHeld(hold));
}

}  // namespace
}  // namespace gpuloom::executor
