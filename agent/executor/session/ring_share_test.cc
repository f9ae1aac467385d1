// SPDX-License-Identifier: Apache-2.0
// Tenants that would have all of what an executor has once: its ring thread, its workers, the driver's linker,
// green contexts, pinned memory. Whatever they do, the neighbour is served.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "agent/executor/copy/staging.h"
#include "agent/executor/device/device.h"
#include "agent/executor/session/tenant.h"
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

// Each would send all that it has: nobody wanted the device when the round began. Whether all of it was there then, or came
// while the driver kept the ring thread.
class ComeTogetherTest : public RingShareTest {
 protected:
  static constexpr int kEach = 16;

  void SetUp() override {
    for (TestingTenant* tenant : {honest_.get(), third_.get()}) {
      ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    }
  }
  // Nobody counts as sharing the device any more, and the ring thread sleeps.
  void WaitUntilIdle() {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(third_->Wait([&] { return third_->writer.ExecutorSleeps(); }));
  }
  void LaunchAll() {
    for (int launch = 0; launch < kEach; ++launch) {
      honest_->LaunchPlain(0, 1);
      last_ = third_->LaunchPlain(0, 1);
    }
  }
  // Whether few of all launches go to the device as long as nothing ends there.
  bool AreLimited() {
    std::vector<std::string> calls;
    const auto launched = [&] {
      for (std::string& call : TestingDriver::TakeCalls()) calls.push_back(std::move(call));
      return Count(calls, "launch");
    };
    EXPECT_TRUE(third_->Wait([&] { return launched() >= 2; }));
    return third_->Never([&] { return launched() > 4; });
  }

  std::unique_ptr<TestingTenant> third_ = scheduler_.AddTenant();
  wire::Ticket last_{};
};

// It may be woken by something else before all are there: then once more.
TEST_F(ComeTogetherTest, WhileTheRingThreadSleeps) {
  EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
    WaitUntilIdle();
    TestingDriver::TakeCalls();
    TestingDriver::Hold();
    honest_->rings = third_->rings = false;
    LaunchAll();
    honest_->rings = third_->rings = true;
    channel::RingDoorbell(third_->doorbell.get());
    const bool limited = AreLimited();
    TestingDriver::Release();
    EXPECT_TRUE(third_->WaitDone(0, last_));
    return limited;
  }));
}

TEST_F(ComeTogetherTest, WhileTheDriverKeepsTheRingThread) {
  const uint64_t memory = hostile_->Alloc(4096);
  WaitUntilIdle();
  TestingDriver::HoldCalls("fill");
  hostile_->Post<wire::Fill>({StreamId{0}, 1, 0, 0, memory, 16});
  ASSERT_TRUE(hostile_->Wait([] { return TestingDriver::held_calls() == 1; }));
  TestingDriver::TakeCalls();
  LaunchAll();
  TestingDriver::Hold();
  TestingDriver::ReleaseCalls();
  EXPECT_TRUE(AreLimited());
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

// From pageable memory the driver would copy while the ring thread waits.
TEST_F(RingShareTest, Malicious_OneTenantHasAPartOfTheStagingMemory) {
  constexpr size_t kEach = Staging::kSessionBytes / wire::kMaxInlineCopyBytes;
  constexpr size_t kOfTenant = Staging::kTenantBytes / wire::kMaxInlineCopyBytes;
  std::vector<std::unique_ptr<TestingTenant>> hostile;
  std::vector<wire::Ticket> last;
  const std::vector<uint8_t> payload(wire::kMaxInlineCopyBytes);
  TestingDriver::Hold();
  for (size_t i = 0; i < 4; ++i) {
    hostile.push_back(scheduler_.AddTenant(kHostile));
    const wire::DevicePtr memory{hostile.back()->Alloc(1u << 20)};
    for (size_t k = 0; k < kEach; ++k) {
      last.push_back(hostile.back()->Post<wire::CopyInline>({StreamId{0}, 0, memory}, payload));
    }
    ASSERT_EQ(hostile.back()->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  }
  size_t copies = 0;
  const auto count = [&] { return copies += Count(TestingDriver::TakeCalls(), "copy"); };
  EXPECT_TRUE(honest_->Never([&] { return count() > kOfTenant; })) << copies;
  EXPECT_EQ(copies, kOfTenant);
  const wire::DevicePtr memory{honest_->Alloc(1u << 20)};
  honest_->Post<wire::CopyInline>({StreamId{0}, 0, memory}, payload);
  EXPECT_TRUE(honest_->Wait([&] { return count() == kOfTenant + 1; }));
  TestingDriver::Release();
  for (size_t i = 0; i < hostile.size(); ++i) {
    EXPECT_TRUE(hostile[i]->WaitDone(0, last[(i + 1) * kEach - 1]));
  }
  // What ends gives back.
  hostile.clear();
  EXPECT_TRUE(
      honest_->WaitDone(0, honest_->Post<wire::CopyInline>({StreamId{0}, 0, memory}, payload)));
}

TEST(Staging, Malicious_ManyTenantsTogetherLeaveRoomForAnother) {
  constexpr uint64_t kBytes = wire::kMaxInlineCopyBytes;
  const std::vector<uint8_t> payload(kBytes);
  Device device(TestingDriver::Reset());
  Staging staging;
  staging.Start(&device);
  std::vector<std::unique_ptr<Tenant>> tenants;
  std::vector<uint8_t*> copies;
  for (int i = 0; i < 6; ++i) {
    tenants.push_back(std::make_unique<Tenant>("hostile"));
    while (staging.HasRoom(*tenants.back(), kBytes)) {
      copies.push_back(staging.Copy(tenants.back().get(), payload));
      ASSERT_NE(copies.back(), nullptr);
    }
    EXPECT_NE(tenants.back()->staged_bytes, 0u) << i;
    EXPECT_LE(tenants.back()->staged_bytes, Staging::kTenantBytes);
  }
  Tenant another("honest");
  EXPECT_TRUE(staging.HasRoom(another, kBytes));
  // Of what comes back, who has much gets nothing at first.
  staging.Give(tenants.front().get(), copies.front(), kBytes);
  EXPECT_FALSE(staging.HasRoom(*tenants.front(), kBytes));
  // The executor's own have theirs.
  std::vector<uint8_t*> words;
  for (uint64_t i = 0; i < Staging::kWords; ++i) words.push_back(staging.TakeWord());
  EXPECT_EQ(std::count(words.begin(), words.end(), nullptr), 0);
  EXPECT_EQ(staging.TakeWord(), nullptr);
  staging.GiveWord(words.back());
  EXPECT_NE(staging.TakeWord(), nullptr);
}

// Each session pins memory, which takes without end: the workers that map and free are not all the tenant's.
TEST_F(RingShareTest, Malicious_PinningWithoutEndOfManySessionsLeavesWorkersToOthers) {
  std::vector<std::unique_ptr<TestingTenant>> hostile;
  for (int i = 0; i < 8; ++i) hostile.push_back(scheduler_.AddTenant(kHostile));
  TestingDriver::HoldCalls("register");
  for (const auto& tenant : hostile) {
    const uint64_t address = tenant->order.host_range_begin + (1u << 20);
    std::memset(reinterpret_cast<void*>(address), 1, 4096);
    tenant->Post<wire::HostRegister>({HostPtr{address}, 4096}, {}, 1);
  }
  // By then all of them are with the workers or wait for one.
  for (const auto& tenant : hostile) ASSERT_EQ(tenant->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  ASSERT_TRUE(honest_->Wait([] { return TestingDriver::held_calls() >= 2; }));
  const uint64_t memory = honest_->Alloc(64u << 20);
  EXPECT_NE(memory, 0u);
  EXPECT_EQ(honest_->Free(memory), CUDA_SUCCESS);
  EXPECT_LE(TestingDriver::held_calls(), 2) << "half of the workers";
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
