// SPDX-License-Identifier: Apache-2.0
// Sessions of the real loop, with a driver that needs no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/launch/chunk.h"
#include "agent/executor/memory/device_space.h"
#include "agent/executor/stream/stream_set.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using std::chrono::milliseconds;
using ::testing::Contains;
using ::testing::Not;
using wire::DevicePtr;
using wire::EventId;
using wire::Fatal;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

class SessionTest : public ::testing::Test {
 protected:
  // After Release nothing may hang on what a failed test has left.
  ~SessionTest() override { TestingDriver::Release(); }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(SessionTest, AllocatesCopiesLaunchesAndFrees) {
  ASSERT_EQ(tenant_->ready.ok, 1u) << tenant_->ready.message;
  const uint64_t memory = tenant_->Alloc(4u << 20);
  ASSERT_NE(memory, 0u);
  EXPECT_EQ(scheduler_.memory_in_use(), 4u << 20);
  ASSERT_TRUE(tenant_->PinArena(1u << 20, 1u << 16));
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  tenant_->Post<wire::Copy>({StreamId{0}, wire::CopyKind::kHostToDevice, memory,
                             tenant_->order.host_range_begin + (1u << 20), 4096});
  tenant_->LaunchPlain(0, 1);
  const Ticket last = tenant_->Post<wire::Fill>({StreamId{0}, 4, 7, 0, memory, 1024});
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_EQ(tenant_->Free(memory), CUDA_SUCCESS);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

// Whoever sees a stream done sees done what the stream waited for.
TEST_F(SessionTest, WhatAStreamWaitedForIsPublishedBeforeIt) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant_->CreateStream(1, /*nonblocking=*/false));
  for (int i = 0; i < 500; ++i) {
    TestingDriver::Hold();
    const Ticket before = tenant_->LaunchPlain(1, 1);
    const Ticket behind = tenant_->LaunchPlain(0, 1);  // the legacy stream waits for the other
    std::vector<std::string> calls;
    ASSERT_TRUE(tenant_->Wait([&] {
      for (std::string& call : TestingDriver::TakeCalls()) calls.push_back(std::move(call));
      // Plainly, or by a graph of one node.
      return std::count_if(calls.begin(), calls.end(), [](const std::string& call) {
               return call.starts_with("launch") || call.starts_with("graph");
             }) == 2;
    }));
    TestingDriver::Release();
    while (!tenant_->reader.Done(StreamId{0}, behind)) {
    }
    ASSERT_TRUE(tenant_->reader.Done(StreamId{1}, before)) << "in round " << i;
  }
}

TEST_F(SessionTest, SmallAllocationsShareAGranuleAndGiveItBack) {
  const uint64_t a = tenant_->Alloc(100);
  const uint64_t b = tenant_->Alloc(100);
  EXPECT_EQ(b, a + kSliceAlignment);
  EXPECT_EQ(scheduler_.memory_in_use(), kGranuleBytes);
  EXPECT_EQ(tenant_->Free(a), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), kGranuleBytes);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(scheduler_.memory_in_use(), kGranuleBytes);
  EXPECT_EQ(tenant_->Free(b), CUDA_SUCCESS);
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
  EXPECT_EQ(tenant_->Free(b), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, OutOfMemoryIsTheSchedulersAnswerAndNothingIsLost) {
  scheduler_.quota_bytes = 4u << 20;
  EXPECT_EQ(tenant_->Call<wire::MemAlloc>({6u << 20}), CUDA_ERROR_OUT_OF_MEMORY);
  const uint64_t all = tenant_->Alloc(4u << 20);
  EXPECT_NE(all, 0u);
  EXPECT_EQ(tenant_->Call<wire::MemAlloc>({1}), CUDA_ERROR_OUT_OF_MEMORY);
  wire::MemInfo::Reply info{};
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.free_bytes, 0u);
  EXPECT_EQ(tenant_->Free(all), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::MemInfo>({}, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.free_bytes, 4u << 20) << "what is kept is free to the tenant";
  EXPECT_TRUE(scheduler_.Reclaim(*tenant_));
  EXPECT_NE(tenant_->Alloc(1), 0u);
}

TEST_F(SessionTest, MemoryIsClearedBeforeItIsGivenOut) {
  scheduler_.must_clear = true;
  ASSERT_NE(tenant_->Alloc(2u << 20), 0u);
  const auto calls = TestingDriver::TakeCalls();
  const auto cleared = std::find_if(calls.begin(), calls.end(), [](const std::string& call) {
    return call.starts_with("clear");  // where no tenant can see it
  });
  ASSERT_NE(cleared, calls.end());
  EXPECT_NE(std::find(cleared, calls.end(), "unmap"), calls.end());
}

TEST_F(SessionTest, FreeWaitsForEarlierWorkOnly) {
  const uint64_t memory = tenant_->Alloc(2u << 20);
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  const Ticket launch = tenant_->LaunchPlain(0, 1);
  const Ticket free = tenant_->Post<wire::MemFree>({DevicePtr{memory}}, {}, 3);
  EXPECT_TRUE(tenant_->Never([&] { return tenant_->reader.FindReply(3, free) != nullptr; }));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, launch));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(3, free) != nullptr; }));
}

TEST_F(SessionTest, NeighboursWorkDelaysNothingOfMine) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  auto neighbour = scheduler_.AddTenant();
  // Its own copy, because of the variable.
  const std::string image = std::string(kEmptyPtx) + ".visible .global .u32 counter;\n";
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", image));
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  const uint64_t memory = neighbour->Alloc(2u << 20);
  EXPECT_NE(memory, 0u);
  EXPECT_EQ(neighbour->Free(memory), CUDA_SUCCESS);
  EXPECT_EQ(neighbour->Call<wire::LibraryUnload>({LibraryId{1}}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*neighbour);
  const auto ended = scheduler_.WaitEnded(neighbour->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  // What would have waited for the neighbour's kernel has not been called yet.
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains("unload")));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->Wait([] {
    static std::vector<std::string> calls;
    for (auto& call : TestingDriver::TakeCalls()) calls.push_back(call);
    return std::find(calls.begin(), calls.end(), "unload") != calls.end();
  }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(SessionTest, MoreLaunchesThanTheDriverTakesAreQueuedAndRun) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  (void)TestingDriver::TakeCalls();
  TestingDriver::Hold();
  Ticket last{};
  for (int i = 0; i < 3000; ++i) last = tenant_->LaunchPlain(0, 1);
  uint32_t launches = 0;
  const auto count = [&] {
    for (const std::string& call : TestingDriver::TakeCalls()) {
      launches += call.starts_with("launch") || call.starts_with("graph");
    }
    return launches >= kFirstInFlight;
  };
  EXPECT_TRUE(tenant_->Wait(count));
  const auto neighbour = scheduler_.AddTenant();
  EXPECT_TRUE(neighbour->Never([&] {
    count();
    return launches >= kFirstInFlight + kMaxChunkLaunches;
  }));
  EXPECT_LT(launches, kFirstInFlight + kMaxChunkLaunches);
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(SessionTest, NeighboursLongKernelDoesNotKeepASessionFromEnding) {
  TestingDriver::SetLoadsBlock(true);
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  auto neighbour = scheduler_.AddTenant();
  const std::string other = std::string(kEmptyPtx) + "// another program\n";
  ASSERT_EQ(neighbour->LoadLibrary(1, other), CUDA_SUCCESS);
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  const uint8_t name[] = {'k'};
  const Ticket get = neighbour->Post<wire::KernelGet>({LibraryId{1}, KernelId{1}}, name, 9);
  EXPECT_TRUE(neighbour->Never([&] { return neighbour->reader.FindReply(9, get) != nullptr; }));
  scheduler_.RemoveTenant(*neighbour);
  const auto ended = scheduler_.WaitEnded(neighbour->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
}

TEST_F(SessionTest, TheSameProgramIsLoadedOnce) {
  TestingDriver::SetLoadsBlock(true);
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  auto neighbour = scheduler_.AddTenant();
  (void)TestingDriver::TakeCalls();
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(neighbour->LoadKernel(7, 7, "k", kEmptyPtx)) << "while the device is busy";
  EXPECT_EQ(neighbour->Call<wire::LibraryUnload>({LibraryId{7}}), CUDA_SUCCESS);
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, tenant_->LaunchPlain(0, 1)));
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_THAT(calls, Not(Contains("load")));
  EXPECT_THAT(calls, Not(Contains("unload")));
}

TEST_F(SessionTest, ProgramsWithVariablesAreLoadedForEach) {
  const std::string image = std::string(kEmptyPtx) + ".visible .global .u32 counter;\n";
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", image));
  auto neighbour = scheduler_.AddTenant();
  (void)TestingDriver::TakeCalls();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", image));
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains("load"));
}

TEST_F(SessionTest, SmallCopiesWaitForTheirRoomNotTheRingThread) {
  const uint64_t memory = tenant_->Alloc(1u << 20);
  ASSERT_NE(memory, 0u);
  (void)TestingDriver::TakeCalls();
  TestingDriver::Hold();
  const std::vector<uint8_t> payload(wire::kMaxInlineCopyBytes);
  Ticket last{};
  for (int i = 0; i < 40; ++i) {
    last = tenant_->Post<wire::CopyInline>({StreamId{0}, 0, DevicePtr{memory}}, payload);
  }
  uint32_t copies = 0;
  const auto count = [&] {
    for (const std::string& call : TestingDriver::TakeCalls()) copies += call.starts_with("copy");
    return copies >= 16;
  };
  EXPECT_TRUE(tenant_->Wait(count));
  const auto neighbour = scheduler_.AddTenant();
  EXPECT_TRUE(neighbour->Never([&] { return count() && copies > 16; }));
  EXPECT_EQ(copies, 16u);
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, last));
}

TEST_F(SessionTest, TimedEventsAnswer) {
  tenant_->Post<wire::EventCreate>({EventId{1}, 1});
  tenant_->Post<wire::EventCreate>({EventId{2}, 1});
  tenant_->Post<wire::EventRecord>({EventId{1}, StreamId{0}});
  EXPECT_EQ(tenant_->Call<wire::EventElapsed>({EventId{1}, EventId{2}}), CUDA_ERROR_INVALID_HANDLE);
  const Ticket end = tenant_->Post<wire::EventRecord>({EventId{2}, StreamId{0}});
  ASSERT_TRUE(tenant_->WaitDone(0, end));
  wire::EventElapsed::Reply reply{};
  EXPECT_EQ(tenant_->Call<wire::EventElapsed>({EventId{1}, EventId{2}}, &reply), CUDA_SUCCESS);
  float milliseconds = 0;
  std::memcpy(&milliseconds, &reply.milliseconds_bits, sizeof(milliseconds));
  EXPECT_EQ(milliseconds, 1.5F);
}

TEST_F(SessionTest, AsynchronousErrorsAreTold) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  const Ticket bad = tenant_->Post<wire::Launch>(
      {StreamId{0}, KernelId{1}, {0, 1, 1}, {1, 1, 1}, 0, 0}, PlainParams());
  ASSERT_TRUE(tenant_->WaitDone(0, bad));
  EXPECT_EQ(tenant_->reader.async_error_count(), 1u);
  EXPECT_EQ(tenant_->reader.async_error_code(), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, EndReturnsEverything) {
  ASSERT_NE(tenant_->Alloc(4u << 20), 0u);
  ASSERT_NE(tenant_->Alloc(17), 0u);
  ASSERT_TRUE(tenant_->PinArena(1u << 20, 1u << 16));
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  const Ticket last = tenant_->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant_->WaitDone(0, last));
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
  EXPECT_EQ(ended->kernels_launched, 1u);
  EXPECT_EQ(ended->fatal, 0u);
  EXPECT_EQ(scheduler_.memory_in_use(), 0u);
}

TEST_F(SessionTest, HangUpEndsTheSession) {
  tenant_->doorbell.Reset();
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
}

TEST_F(SessionTest, EndlessKernelIsReportedNotWaitedFor) {
  scheduler_.drain_timeout_ms = 100;
  auto endless = scheduler_.AddTenant();
  ASSERT_TRUE(endless->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  endless->LaunchPlain(0, 1);
  ASSERT_TRUE(endless->Wait([] { return TestingDriver::WasCalled("launch"); }));
  scheduler_.RemoveTenant(*endless);
  const auto ended = scheduler_.WaitEnded(endless->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 0u);
}

// A driver's call that waits for others' work, say: it costs the domain nothing.
TEST_F(SessionTest, ASessionThatIsBeingReturnedSaysThatItWaits) {
  scheduler_.drain_timeout_ms = 50;
  auto ending = scheduler_.AddTenant();
  ASSERT_NE(ending->Alloc(1000), 0u);
  TestingDriver::HoldCalls("unmap");
  scheduler_.RemoveTenant(*ending);
  EXPECT_TRUE(scheduler_.WaitWaits(ending->order.session_id, 2));
  TestingDriver::ReleaseCalls();
  const auto ended = scheduler_.WaitEnded(ending->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->drained, 1u);
}

TEST_F(SessionTest, PinningIsBoundedAndComesBack) {
  ASSERT_TRUE(tenant_->PinArena(0, scheduler_.pinned_limit_bytes));
  const uint64_t begin = tenant_->order.host_range_begin;
  const uint64_t beyond = begin + scheduler_.pinned_limit_bytes;
  std::memset(reinterpret_cast<void*>(beyond), 1, 4096);
  EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{beyond}, 4096}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tenant_->Call<wire::HostUnregister>({HostPtr{begin}, scheduler_.pinned_limit_bytes}),
            CUDA_SUCCESS);
  // The same part, still pinned or not, and another cut of it.
  EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{begin}, scheduler_.pinned_limit_bytes}),
            CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::HostUnregister>({HostPtr{begin}, scheduler_.pinned_limit_bytes}),
            CUDA_SUCCESS);
  EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{begin + 4096}, 4096}), CUDA_SUCCESS);
}

// A program that has freed all of it is not out of memory because others' kernels run.
TEST_F(SessionTest, WhoNeedsThePlaceOfWhatItHasUnpinnedWaitsForIt) {
  const uint64_t limit_bytes = scheduler_.pinned_limit_bytes;
  ASSERT_TRUE(tenant_->PinArena(0, limit_bytes));
  const auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::Hold();
  neighbour->LaunchPlain(0, 1);
  const uint64_t begin = tenant_->order.host_range_begin;
  const uint64_t beyond = begin + limit_bytes;
  std::memset(reinterpret_cast<void*>(beyond), 1, 4096);
  ASSERT_EQ(tenant_->Call<wire::HostUnregister>({HostPtr{begin}, limit_bytes}), CUDA_SUCCESS);
  const auto asked = tenant_->Post<wire::HostRegister>({HostPtr{beyond}, 4096}, {}, 1);
  // Answered after that one has been read.
  ASSERT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->reader.FindReply(1, asked), nullptr);
  TestingDriver::Release();
  const wire::ReplySlot* answer = nullptr;
  ASSERT_TRUE(
      tenant_->Wait([&] { return (answer = tenant_->reader.FindReply(1, asked)) != nullptr; }));
  EXPECT_EQ(static_cast<CUresult>(answer->result), CUDA_SUCCESS);
}

// The next session at these addresses could pin nothing there.
TEST_F(SessionTest, WhatWaitsToBeUnpinnedIsUnpinnedWhenTheTenantEnds) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_TRUE(tenant_->PinArena(0, 4096));
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  const uint64_t pages = tenant_->order.host_range_begin;
  tenant_->Post<wire::HostUnregister>({HostPtr{pages}, 4096}, {}, 1);
  // Answered when both have been read.
  ASSERT_EQ(tenant_->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*tenant_);
  // Told of after that, so the end has begun.
  const auto next = scheduler_.AddTenant();
  TestingDriver::Release();
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  EXPECT_TRUE(tenant_->Wait(
      [&] { return TestingDriver::WasCalled("unregister " + std::to_string(pages)); }));
}

TEST_F(SessionTest, HolesAreNotPinned) {
  EXPECT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{tenant_->order.host_range_begin}, 1u << 20}),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(SessionTest, ImagesCutShortAreRefused) {
  const std::string_view not_ptx = "this is no image";
  EXPECT_EQ(tenant_->LoadLibrary(1, not_ptx), CUDA_ERROR_INVALID_IMAGE);
  // A fatbin that says it is longer than it is.
  const uint8_t fatbin[] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0, 0, 1, 0, 0, 0, 0, 0, 0};
  EXPECT_EQ(tenant_->LoadLibrary(
                1, std::string_view(reinterpret_cast<const char*>(fatbin), sizeof(fatbin))),
            CUDA_ERROR_INVALID_IMAGE);
  // The id is free again.
  EXPECT_EQ(tenant_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
}

TEST_F(SessionTest, MissingKernelsAreAnAnswer) {
  ASSERT_EQ(tenant_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  const uint8_t name[] = {'m', 'i', 's', 's', 'i', 'n', 'g'};
  EXPECT_EQ(tenant_->Call<wire::KernelGet>({LibraryId{1}, KernelId{5}}, nullptr, name),
            CUDA_ERROR_NOT_FOUND);
  EXPECT_TRUE(tenant_->LoadKernel(2, 5, "k", kEmptyPtx));
}

TEST_F(SessionTest, StreamIdsAreUsedAgain) {
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(tenant_->CreateStream(7, false));
    tenant_->LaunchPlain(7, 1);
    const Ticket last = tenant_->Post<wire::StreamDestroy>({StreamId{7}});
    ASSERT_TRUE(tenant_->WaitDone(7, last));
  }
}

}  // namespace
}  // namespace gpuloom::executor
