// SPDX-License-Identifier: Apache-2.0
// Tenants that would have all of what an executor has once: its ring thread, its workers, the driver's linker,
// green contexts, pinned memory. Whatever they do, the neighbour is served.
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/device.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"

namespace gpuloom::executor {
namespace {

using wire::EventId;
using wire::GreenContextId;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::LinkId;
using wire::StreamId;

constexpr char kHostile[] = "team/hostile/main";

class RingShareTest : public ::testing::Test {
 protected:
  ~RingShareTest() override {
    TestingDriver::Release();
    TestingDriver::SlowFills(std::chrono::microseconds(0));
  }

  static size_t Count(const std::vector<std::string>& calls, std::string_view what) {
    return static_cast<size_t>(std::count_if(
        calls.begin(), calls.end(), [what](const auto& call) { return call.starts_with(what); }));
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, /*batches=*/false};
  std::unique_ptr<TestingTenant> hostile_ = scheduler_.AddTenant(kHostile);
  std::unique_ptr<TestingTenant> honest_ = scheduler_.AddTenant();
};

// Commands of a millisecond each: what is in the ring beside the neighbour's launch does not go before it.
TEST_F(RingShareTest, Malicious_CostlyCommandsLeaveTheNeighbourItsTurn) {
  ASSERT_TRUE(honest_->LoadKernel(1, 1, "k", kEmptyPtx));
  const uint64_t memory = hostile_->Alloc(4096);
  for (uint32_t stream = 1; stream <= 16; ++stream) {
    ASSERT_TRUE(hostile_->CreateStream(stream, /*nonblocking=*/true));
  }
  // The ring thread is in the first fill until all of the others are in the ring.
  TestingDriver::SlowFills(std::chrono::milliseconds(1));
  TestingDriver::HoldCalls("fill");
  for (uint32_t i = 0; i < 256; ++i) {
    hostile_->Post<wire::Fill>({StreamId{1 + i % 16}, 1, 0, 0, memory, 16});
  }
  ASSERT_TRUE(hostile_->Wait([] { return TestingDriver::held_calls() == 1; }));
  TestingDriver::TakeCalls();
  const wire::Ticket launch = honest_->LaunchPlain(0, 1);
  TestingDriver::ReleaseCalls();
  ASSERT_TRUE(honest_->WaitDone(0, launch));
  // Those before it: what goes later keeps nobody, and its number is only this thread's slowness.
  std::vector<std::string> calls = TestingDriver::TakeCalls();
  const auto launched = std::find_if(calls.begin(), calls.end(), [](const std::string& call) {
    return call.starts_with("launch");
  });
  ASSERT_NE(launched, calls.end());
  calls.erase(launched, calls.end());
  EXPECT_LE(Count(calls, "fill"), 64u);
}

TEST_F(RingShareTest, TheNamesOfALargeImageAreCountedOnce) {
  // 64 MiB of them: 4 names.
  static const std::string kLong(16u << 20, 'n');
  TestingDriver::SetKernelNames(4, kLong.c_str());
  ASSERT_EQ(hostile_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  wire::LibraryKernels::Reply reply{};
  ASSERT_EQ(hostile_->Call<wire::LibraryKernels>({LibraryId{1}, 0}, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.kernel_count, 4u);
  ASSERT_EQ(honest_->LoadLibrary(1, std::string(kEmptyPtx) + " "), CUDA_SUCCESS);
  TestingDriver::SetKernelNames(1, "found");
  ASSERT_EQ(honest_->Call<wire::LibraryKernels>({LibraryId{1}, 0}, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.kernel_count, 1u);
  // Whoever asked the driver again would hear of one.
  ASSERT_EQ(hostile_->Call<wire::LibraryKernels>({LibraryId{1}, 0}, &reply), CUDA_SUCCESS);
  EXPECT_EQ(reply.kernel_count, 4u);
}

// Somebody's text is compiled without end, and nobody can stop that: texts of others go to the driver as they
// are.
TEST_F(RingShareTest, Malicious_ACompilationWithoutEndKeepsTheLinkerFromNobody) {
  ASSERT_EQ(hostile_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  TestingDriver::HoldCalls("link");
  hostile_->Post<wire::LinkComplete>({LinkId{1}}, {}, 1);
  ASSERT_TRUE(hostile_->Wait([] { return TestingDriver::held_calls() == 1; }));
  EXPECT_TRUE(honest_->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_EQ(TestingDriver::held_calls(), 1) << "it is still at it";
}

// Each session looks up a kernel, which takes without end: the workers are not all the tenant's.
TEST_F(RingShareTest, Malicious_LookUpsWithoutEndOfManySessionsLeaveWorkersToOthers) {
  ASSERT_EQ(honest_->LoadLibrary(1, kEmptyPtx), CUDA_SUCCESS);
  std::vector<std::unique_ptr<TestingTenant>> hostile;
  for (int i = 0; i < 8; ++i) {
    hostile.push_back(scheduler_.AddTenant(kHostile));
    ASSERT_TRUE(hostile.back()->LoadKernel(1, 1, "k", kEmptyPtx));
  }
  TestingDriver::HoldCalls("occupancy");
  for (const auto& tenant : hostile) {
    tenant->Post<wire::OccupancyBlocks>({KernelId{1}, 32, 0, 0, 0}, {}, 1);
  }
  ASSERT_TRUE(honest_->Wait([] { return TestingDriver::held_calls() >= 2; }));
  const uint8_t name[] = {'k'};
  EXPECT_EQ(honest_->Call<wire::KernelGet>({LibraryId{1}, KernelId{1}}, nullptr, name),
            CUDA_SUCCESS);
  EXPECT_LE(TestingDriver::held_calls(), 2) << "half of the workers";
}

TEST_F(RingShareTest, Malicious_OneTenantHasAPartOfTheLinkers) {
  auto other = scheduler_.AddTenant(kHostile);
  uint32_t made = 0;
  for (uint32_t id = 1; id <= 64; ++id) {
    TestingTenant* tenant = id % 2 == 0 ? hostile_.get() : other.get();
    made += tenant->Call<wire::LinkCreate>({LinkId{id}}) == CUDA_SUCCESS;
  }
  EXPECT_EQ(made, 16u);
  EXPECT_EQ(honest_->Call<wire::LinkCreate>({LinkId{1}}), CUDA_SUCCESS);
  scheduler_.RemoveTenant(*other);
  ASSERT_TRUE(scheduler_.WaitEnded(other->order.session_id).has_value());
  EXPECT_TRUE(hostile_->Wait([&] {
    return hostile_->Call<wire::LinkCreate>({LinkId{100}}) == CUDA_SUCCESS;
  })) << "what ends is given back";
}

// Graphs with functions, each with words in pinned memory.
TEST_F(RingShareTest, Malicious_OneTenantHasAPartOfTheStagingMemory) {
  TestingGraph graph;
  for (uint32_t i = 0; i < 512; ++i) graph.AddHostCall(i);
  // What one session may have of nodes is used up sooner than all of the memory.
  auto other = scheduler_.AddTenant(kHostile);
  uint32_t made = 0;
  for (TestingTenant* tenant : {hostile_.get(), other.get()}) {
    std::optional<CUresult> result = CUDA_SUCCESS;
    for (uint32_t id = 1; result == CUDA_SUCCESS; ++id, ++made) {
      result = tenant->Call<wire::GraphInstantiate>({wire::GraphId{id}, 0, HostPtr{0}, 0}, nullptr,
                                                    graph.Block());
    }
    EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
  }
  EXPECT_GE(made, Staging::kTenantBytes / 4096);
  EXPECT_EQ(honest_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                                  graph.Block()),
            CUDA_SUCCESS);
}

TEST_F(RingShareTest, StreamsAndEventsBeyondABoundAreDestroyed) {
  constexpr uint32_t kStreams = 200;
  constexpr uint32_t kEvents = 3000;
  for (int round = 0; round < 3; ++round) {
    const uint64_t memory = hostile_->Alloc(4096);
    for (uint32_t id = 1; id <= kStreams; ++id) {
      ASSERT_TRUE(hostile_->CreateStream(id, /*nonblocking=*/true));
      hostile_->Post<wire::Fill>({StreamId{id}, 1, 0, 0, memory, 16});
    }
    wire::Ticket last{};
    for (uint32_t id = 1; id <= kEvents; ++id) {
      hostile_->Post<wire::EventCreate>({EventId{id}, 1});
      last = hostile_->Post<wire::EventRecord>({EventId{id}, StreamId{1}});
    }
    ASSERT_TRUE(hostile_->WaitDone(1, last));
    scheduler_.RemoveTenant(*hostile_);
    ASSERT_TRUE(scheduler_.WaitEnded(hostile_->order.session_id).has_value());
    hostile_ = scheduler_.AddTenant(kHostile);
  }
  EXPECT_TRUE(honest_->Wait([&] {
    const TestingDriver::Made made = TestingDriver::made();
    return made.streams <= static_cast<int>(Device::kMaxIdleStreams) + 8 &&
           made.events <= static_cast<int>(2 * Device::kMaxIdleEvents) + 64;
  })) << TestingDriver::made().streams
      << " streams, " << TestingDriver::made().events << " events";
}

}  // namespace
}  // namespace gpuloom::executor
