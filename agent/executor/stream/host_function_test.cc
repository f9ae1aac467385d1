// SPDX-License-Identifier: Apache-2.0
// What the executor holds back for functions that a tenant runs in its own process.
#include <gtest/gtest.h>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::EventId;
using wire::Fatal;
using wire::StreamId;
using wire::Ticket;

class HostFunctionTest : public ::testing::Test {
 protected:
  // After Release nothing may hang on what a failed test has left.
  ~HostFunctionTest() override { TestingDriver::Release(); }

  Ticket PostFunction(uint32_t stream, uint64_t id) {
    return tenant_->Post<wire::HostFunction>({id, StreamId{stream}, 0});
  }
  bool WaitDue(uint32_t count) {
    return tenant_->Wait([&] { return tenant_->reader.host_functions_due() == count; });
  }
  bool StaysDue(uint32_t count) {
    return tenant_->Never([&] { return tenant_->reader.host_functions_due() != count; });
  }
  void Ran(uint32_t count) {
    tenant_->writer.PublishHostFunctionsDone(count);
    if (tenant_->writer.ExecutorSleeps()) channel::RingDoorbell(tenant_->doorbell.get());
  }

  TestingScheduler scheduler_{TestingDriver::Reset()};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(HostFunctionTest, IsDueWhenTheWorkBeforeItIsDoneAndHoldsWhatStandsBehind) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  TestingDriver::Hold();
  const Ticket before = tenant_->LaunchPlain(1, 1);
  const Ticket function = PostFunction(1, 77);
  const Ticket behind = tenant_->LaunchPlain(1, 1);
  EXPECT_TRUE(StaysDue(0));
  TestingDriver::Release();
  ASSERT_TRUE(WaitDue(1));
  EXPECT_EQ(tenant_->reader.HostFunction(0), 77u);
  EXPECT_TRUE(tenant_->WaitDone(1, before));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{1}, function));
  // Others go on.
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  Ran(1);
  EXPECT_TRUE(tenant_->WaitDone(1, behind));
}

TEST_F(HostFunctionTest, WaitsForEventsAndIsWaitedFor) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  tenant_->Post<wire::EventCreate>({EventId{1}, 0});
  tenant_->Post<wire::EventCreate>({EventId{2}, 0});
  TestingDriver::Hold();
  tenant_->LaunchPlain(1, 1);
  tenant_->Post<wire::EventRecord>({EventId{1}, StreamId{1}});
  tenant_->Post<wire::StreamWaitEvent>({StreamId{2}, EventId{1}});
  PostFunction(2, 5);
  tenant_->Post<wire::EventRecord>({EventId{2}, StreamId{2}});
  tenant_->Post<wire::StreamWaitEvent>({StreamId{1}, EventId{2}});
  const Ticket last = tenant_->LaunchPlain(1, 1);
  EXPECT_TRUE(StaysDue(0));
  TestingDriver::Release();
  ASSERT_TRUE(WaitDue(1));
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.Done(StreamId{1}, last); }));
  Ran(1);
  EXPECT_TRUE(tenant_->WaitDone(1, last));
}

TEST_F(HostFunctionTest, MoreStreamsThanTheBoardHolds) {
  constexpr uint32_t kStreams = wire::kMaxDueHostFunctions + 50;
  std::vector<Ticket> tickets;
  for (uint32_t i = 1; i <= kStreams; ++i) {
    ASSERT_TRUE(tenant_->CreateStream(i, true));
    tickets.push_back(PostFunction(i, i));
  }
  ASSERT_TRUE(WaitDue(wire::kMaxDueHostFunctions));
  EXPECT_TRUE(StaysDue(wire::kMaxDueHostFunctions));
  Ran(60);
  ASSERT_TRUE(WaitDue(kStreams));
  Ran(kStreams);
  for (uint32_t i = 1; i <= kStreams; ++i) EXPECT_TRUE(tenant_->WaitDone(i, tickets[i - 1]));
}

// The ring fills up behind a function; its end must be seen all the same.
TEST_F(HostFunctionTest, EndsAlthoughTheRingIsNotRead) {
  PostFunction(0, 1);
  ASSERT_TRUE(WaitDue(1));
  const uint64_t memory = tenant_->Alloc(4096);
  Ticket last{};
  for (int i = 0; i < 75'000; ++i) {
    last = tenant_->Post<wire::Fill>({StreamId{0}, 4, 7, 0, memory, 1});
  }
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->writer.ExecutorSleeps(); }));
  Ran(1);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(HostFunctionTest, OneThatNeverReturnsEndsWithItsSession) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  PostFunction(0, 1);
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(WaitDue(1));
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
}

TEST_F(HostFunctionTest, Malicious_MoreDoneThanDueEndsTheSessionAlone) {
  auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  PostFunction(0, 1);
  ASSERT_TRUE(WaitDue(1));
  Ran(2);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadArgument));
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
}

TEST_F(HostFunctionTest, Malicious_UnknownStreamEndsTheSession) {
  PostFunction(9, 1);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadHandle));
}

}  // namespace
}  // namespace gpuloom::executor
