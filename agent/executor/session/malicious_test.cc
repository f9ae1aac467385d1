// SPDX-License-Identifier: Apache-2.0
// Tenants that break the protocol: each is ended, and the next honest one is served.
#include <gtest/gtest.h>

#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::DevicePtr;
using wire::Fatal;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

class MaliciousTest : public ::testing::Test {
 protected:
  // After Release nothing may hang on what a failed test has left.
  ~MaliciousTest() override { TestingDriver::Release(); }
  void ExpectEnds(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal))
        << "ended with: " << wire::FatalText(tenant_->reader.fatal());
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->fatal, static_cast<uint32_t>(fatal));
    EXPECT_EQ(ended->drained, 1u);
    EXPECT_EQ(scheduler_.memory_in_use(), 0u);
    auto honest = scheduler_.AddTenant();
    ASSERT_EQ(honest->ready.ok, 1u);
    EXPECT_NE(honest->Alloc(1000), 0u);
    EXPECT_TRUE(honest->LoadKernel(1, 1, "k", kEmptyPtx));
    EXPECT_TRUE(honest->WaitDone(0, honest->LaunchPlain(0, 1)));
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(MaliciousTest, GarbageRing) {
  auto* region = reinterpret_cast<wire::CommandRegion*>(tenant_->commands.data());
  std::memset(region->ring, 0xa5, sizeof(region->ring));
  region->head.tail = 4096;
  channel::RingDoorbell(tenant_->doorbell.get());
  ExpectEnds(Fatal::kRecordTruncated);
}

TEST_F(MaliciousTest, TailBeyondTheRing) {
  auto* region = reinterpret_cast<wire::CommandRegion*>(tenant_->commands.data());
  region->head.tail = wire::kRingBytes + 16;
  channel::RingDoorbell(tenant_->doorbell.get());
  ExpectEnds(Fatal::kTailBeyondCapacity);
}

TEST_F(MaliciousTest, UnknownStream) {
  tenant_->Post<wire::Fill>({StreamId{9}, 4, 0, 0, 0, 0});
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousTest, StreamBeyondTheTable) {
  tenant_->Post<wire::StreamCreate>({StreamId{wire::kMaxStreams}, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousTest, UnknownKernel) {
  tenant_->LaunchPlain(0, 1);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousTest, LibraryIdTwice) {
  ASSERT_EQ(tenant_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->LoadLibrary(1, kEmptyPtx), std::nullopt);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousTest, KernelOfAnUnloadedLibrary) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  tenant_->LaunchPlain(0, 1);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousTest, ParametersOfAnotherSize) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Launch(0, 1, PlainParams().first(8));
  ExpectEnds(Fatal::kRecordSize);
}

TEST_F(MaliciousTest, NeighboursMemory) {
  auto neighbour = scheduler_.AddTenant();
  const uint64_t theirs = neighbour->Alloc(2u << 20);
  ASSERT_NE(theirs, 0u);
  tenant_->Post<wire::Fill>({StreamId{0}, 1, 0, 0, theirs, 16});
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadRange));
  EXPECT_EQ(neighbour->Free(theirs), CUDA_SUCCESS);
  EXPECT_TRUE(scheduler_.Reclaim(*neighbour));
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, SizesThatWrap) {
  const uint64_t memory = tenant_->Alloc(2u << 20);
  tenant_->Post<wire::Fill>({StreamId{0}, 4, 0, 0, memory, UINT64_MAX / 4 + 2});
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, OneByteBeyond) {
  const uint64_t memory = tenant_->Alloc(1000);
  tenant_->Post<wire::Fill>({StreamId{0}, 1, 0, 0, memory, 1001});
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, FreedMemory) {
  const uint64_t memory = tenant_->Alloc(2u << 20);
  ASSERT_EQ(tenant_->Free(memory), CUDA_SUCCESS);
  tenant_->Post<wire::Fill>({StreamId{0}, 1, 0, 0, memory, 16});
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, HostSideThatIsNotRegistered) {
  const uint64_t memory = tenant_->Alloc(4096);
  tenant_->Post<wire::Copy>(
      {StreamId{0}, wire::CopyKind::kHostToDevice, memory, tenant_->order.host_range_begin, 4096});
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, ExecutorsOwnMemoryAsHostSide) {
  const uint64_t memory = tenant_->Alloc(4096);
  static char secret[64];
  tenant_->Post<wire::Copy>({StreamId{0}, wire::CopyKind::kHostToDevice, memory,
                             reinterpret_cast<uint64_t>(secret), sizeof(secret)});
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, CopyKindOutOfRange) {
  tenant_->Post<wire::Copy>({StreamId{0}, static_cast<wire::CopyKind>(77), 0, 0, 0});
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousTest, AttributeOutOfRange) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::KernelSetAttribute>({KernelId{1}, 4194312, 1}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousTest, ImageOutsideTheArena) {
  tenant_->Post<wire::LibraryLoad>(
      {LibraryId{1}, 0,
       HostPtr{tenant_->order.host_range_begin + tenant_->order.host_range_bytes - 8}, 16},
      {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, RegisteringOutsideTheArena) {
  tenant_->Post<wire::HostRegister>({HostPtr{tenant_->order.host_range_begin - 4096}, 8192}, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousTest, SlotThatStillWaits) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  const uint64_t memory = tenant_->Alloc(4096);
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  tenant_->Post<wire::MemFree>({DevicePtr{memory}}, {}, 5);
  tenant_->Post<wire::MemInfo>({}, {}, 5);
  EXPECT_TRUE(tenant_->WaitFatal(Fatal::kBadReplySlot));
  TestingDriver::Release();
  ExpectEnds(Fatal::kBadReplySlot);
}

TEST_F(MaliciousTest, NeverReadsItsDoorbell) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  auto* region = reinterpret_cast<wire::CommandRegion*>(tenant_->commands.data());
  region->head.tenant_sleeps = 1;  // for ever
  Ticket last{};
  for (int i = 0; i < 20000; ++i) last = tenant_->LaunchPlain(0, 1);
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  auto honest = scheduler_.AddTenant();
  EXPECT_NE(honest->Alloc(1000), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
