// SPDX-License-Identifier: Apache-2.0
// Words that a tenant's streams write and wait for.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "agent/executor/testing/rounds.h"

namespace gpuloom::executor {
namespace {

using std::chrono::milliseconds;
using wire::Fatal;
using wire::StreamId;
using wire::Ticket;

class MemoryOperationTest : public ::testing::Test {
 protected:
  // After Release nothing may hang on what a failed test has left.
  ~MemoryOperationTest() override { TestingDriver::Release(); }
  void SetUp() override {
    ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
    ASSERT_TRUE(tenant_->CreateStream(1, true));
    memory_ = tenant_->Alloc(4096);
    ASSERT_NE(memory_, 0u);
    host_ = tenant_->order.host_range_begin + kHostOffset;
    Say(0);
    ASSERT_EQ(tenant_->Call<wire::HostRegister>({wire::HostPtr{host_}, 4096}), CUDA_SUCCESS);
  }
  // As the program does, whose arena lies elsewhere in this process.
  void Say(uint64_t value) {
    ASSERT_EQ(pwrite(tenant_->arena.get(), &value, sizeof(value), kHostOffset), 8);
  }
  Ticket Wait(uint32_t stream, uint64_t address, uint64_t value, uint32_t bytes = 4,
              uint32_t condition = CU_STREAM_WAIT_VALUE_EQ) {
    return tenant_->Post<wire::StreamWaitValue>(
        {address, value, StreamId{stream}, bytes, condition, 0});
  }
  Ticket Write(uint32_t stream, uint64_t address, uint64_t value, uint32_t bytes = 4) {
    return tenant_->Post<wire::StreamWriteValue>({address, value, StreamId{stream}, bytes});
  }
  bool StaysUndone(uint32_t stream, Ticket ticket) {
    return tenant_->Never([&] { return tenant_->reader.Done(StreamId{stream}, ticket); });
  }

  static constexpr off_t kHostOffset = 1 << 20;
  TestingScheduler scheduler_{TestingDriver::Reset()};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
  uint64_t memory_ = 0;
  uint64_t host_ = 0;
};

TEST_F(MemoryOperationTest, WritesGoToTheDriver) {
  (void)TestingDriver::TakeCalls();
  EXPECT_TRUE(tenant_->WaitDone(1, Write(1, memory_ + 8, 1, 8)));
  EXPECT_TRUE(tenant_->WaitDone(1, Write(1, host_ + 4, 1)));
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_EQ(std::count_if(calls.begin(), calls.end(),
                          [](const std::string& call) { return call.starts_with("write"); }),
            2);
}

TEST_F(MemoryOperationTest, AWaitHoldsItsStreamUntilTheHostWrites) {
  const Ticket behind = (Wait(1, host_, 3), tenant_->LaunchPlain(1, 1));
  EXPECT_TRUE(StaysUndone(1, behind));
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1))) << "others go on";
  Say(2);
  EXPECT_TRUE(StaysUndone(1, behind));
  Say(3);
  EXPECT_TRUE(tenant_->WaitDone(1, behind));
}

// The testing driver's memory is zero to whoever reads it.
TEST_F(MemoryOperationTest, DeviceMemoryIsLookedAt) {
  EXPECT_TRUE(tenant_->WaitDone(1, Wait(1, memory_, 0)));
  const Ticket never = Wait(1, memory_, 1);
  EXPECT_TRUE(StaysUndone(1, never));
}

TEST_F(MemoryOperationTest, AWaitHoldsNoMomentOfQuiet) {
  TestingDriver::SetLoadsBlock(true);
  auto neighbour = scheduler_.AddTenant();
  const Ticket held = Wait(1, memory_, 1);
  EXPECT_TRUE(StaysUndone(1, held));
  const std::string other = std::string(kEmptyPtx) + "// another program\n";
  EXPECT_TRUE(neighbour->LoadKernel(1, 1, "k", other));
  EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(MemoryOperationTest, AWaitThatNeverEndsGoesWithItsSession) {
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  Wait(1, host_, 1);
  Wait(2, memory_, 1);
  EXPECT_TRUE(StaysUndone(2, tenant_->LaunchPlain(2, 1)));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

// Memory that a stream waits for stays until the wait has ended.
TEST_F(MemoryOperationTest, FreeingWaitsForTheWait) {
  Wait(1, host_, 1);
  Wait(1, memory_, 0);
  const Ticket freed = tenant_->Post<wire::MemFree>({wire::DevicePtr{memory_}}, {}, 5);
  const auto answered = [&] { return tenant_->reader.FindReply(5, freed) != nullptr; };
  EXPECT_TRUE(tenant_->Never(answered));
  Say(1);
  EXPECT_TRUE(tenant_->Wait(answered));
}

// The queue goes with the session, while the device may still copy the word for it.
TEST_F(MemoryOperationTest, FreeingAtTheEndWaitsForALookAtTheWord) {
  TestingDriver::Hold();
  Wait(1, memory_, 1);
  std::vector<std::string> calls;
  const auto look = [&] {
    for (std::string& call : TestingDriver::TakeCalls()) calls.push_back(std::move(call));
    return calls;
  };
  ASSERT_TRUE(tenant_->Wait([&] {
    return std::ranges::any_of(look(), [](const auto& call) { return call.starts_with("copy"); });
  }));
  tenant_->Post<wire::MemFreeLater>({wire::DevicePtr{memory_}});
  scheduler_.RemoveTenant(*tenant_);
  // In the order in which the scheduler has said it.
  const auto late = scheduler_.AddTenant();
  EXPECT_TRUE(late->Never([&] {
    return scheduler_.WaitEnded(tenant_->order.session_id, milliseconds(0)).has_value();
  }));
  EXPECT_EQ(std::ranges::count(look(), "unmap"), 0);
  TestingDriver::Release();
  EXPECT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_EQ(std::ranges::count(look(), "unmap"), 1);
}

TEST_F(MemoryOperationTest, ManyWaitsAtATime) {
  constexpr uint32_t kStreams = 200;
  std::vector<Ticket> tickets;
  for (uint32_t i = 2; i < 2 + kStreams; ++i) {
    ASSERT_TRUE(tenant_->CreateStream(i, true));
    tickets.push_back(Wait(i, host_, 1));
  }
  EXPECT_TRUE(StaysUndone(2, tickets[0]));
  Say(1);
  for (uint32_t i = 0; i < kStreams; ++i) EXPECT_TRUE(tenant_->WaitDone(2 + i, tickets[i]));
}

// In each round all of them ask, always in the same order, and only some are looked at.
TEST(MemoryOperationRounds, WaitsThatNeverEndStarveNoOthers) {
  TestingRounds rounds(TestingDriver::Reset(), {});
  constexpr uint64_t kHostBytes = 64u << 20;
  const control::AddSession order = rounds.NewOrder(1u << 30, kHostBytes);
  rounds.Begin(order);
  TestingRegions& tenant = rounds.tenant();
  uint64_t now_ns = 0;
  const auto round = [&] {
    rounds.Round(now_ns += 2'000'000);
  };  // after it all may be looked at again
  const auto call = [&]<wire::Command C>(const typename C::Request& request) {
    Ticket ticket{};
    ASSERT_TRUE(tenant.TryPost<C>(request, {}, 0, &ticket));
    for (int i = 0; i < 10 && tenant.reader.FindReply(0, ticket) == nullptr; ++i) round();
    const wire::ReplySlot* const reply = tenant.reader.FindReply(0, ticket);
    ASSERT_NE(reply, nullptr);
    ASSERT_EQ(reply->result, CUDA_SUCCESS);
  };
  const uint64_t host = order.host_range_begin;
  std::memset(reinterpret_cast<void*>(host), 0, 4096);  // its pages must be there
  ASSERT_NO_FATAL_FAILURE(call.operator()<wire::HostRegister>({wire::HostPtr{host}, 4096}));
  constexpr uint32_t kStreams = 300;
  Ticket last{};
  for (uint32_t i = 1; i <= kStreams; ++i) {
    const StreamId stream{i};
    ASSERT_NO_FATAL_FAILURE(call.operator()<wire::StreamCreate>({stream, 1, 0}));
    const uint64_t word = host + (i == kStreams ? 0 : 8);
    ASSERT_TRUE(tenant.TryPost<wire::StreamWaitValue>(
        {word, 9, stream, 4, CU_STREAM_WAIT_VALUE_EQ, 0}, {}, wire::kNoReply, &last));
    round();
  }
  for (uint32_t i = 0; i < 2 * kStreams; ++i) round();
  EXPECT_FALSE(tenant.reader.Done(StreamId{kStreams}, last));
  const uint64_t value = 9;
  ASSERT_EQ(pwrite(tenant.arena.get(), &value, sizeof(value), 0), 8);
  for (uint32_t i = 0; i < 2 * kStreams; ++i) round();
  EXPECT_TRUE(tenant.reader.Done(StreamId{kStreams}, last));
}

class MaliciousMemoryOperation : public MemoryOperationTest {
 protected:
  void ExpectFatal(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal));
    auto neighbour = scheduler_.AddTenant();
    ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
    EXPECT_TRUE(neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1)));
  }
};

TEST_F(MaliciousMemoryOperation, WriteOutsideTheSession) {
  auto neighbour = scheduler_.AddTenant();
  const uint64_t theirs = neighbour->Alloc(4096);
  ASSERT_NE(theirs, 0u);
  (void)TestingDriver::TakeCalls();
  Write(1, theirs, 1);
  ExpectFatal(Fatal::kBadRange);
  for (const std::string& call : TestingDriver::TakeCalls())
    EXPECT_FALSE(call.starts_with("write"));
}

TEST_F(MaliciousMemoryOperation, WaitOutsideTheSession) {
  Wait(1, host_ + 4096, 0);
  ExpectFatal(Fatal::kBadRange);
}

TEST_F(MaliciousMemoryOperation, AddressesAtTheEnd) {
  Wait(1, ~uint64_t{7}, 0, 8);
  ExpectFatal(Fatal::kBadRange);
}

TEST_F(MaliciousMemoryOperation, Misaligned) {
  Write(1, memory_ + 4, 1, 8);
  ExpectFatal(Fatal::kBadArgument);
}

TEST_F(MaliciousMemoryOperation, WordsOfNoBytes) {
  Wait(1, memory_, 0, 0);
  ExpectFatal(Fatal::kBadArgument);
}

TEST_F(MaliciousMemoryOperation, UnknownCondition) {
  Wait(1, memory_, 0, 4, 4);
  ExpectFatal(Fatal::kBadArgument);
}

TEST_F(MaliciousMemoryOperation, UnknownStream) {
  Write(9, memory_, 0);
  ExpectFatal(Fatal::kBadHandle);
}

}  // namespace
}  // namespace gpuloom::executor
