// SPDX-License-Identifier: Apache-2.0
// The real loop on the software GPU with kernels that do not end: whose are told of, and whose are not. A kernel is told of
// when it has run for a second, so each test takes one or two.
#include "agent/executor/session/long_kernels.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>

#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/peer.h"
#include "agent/executor/testing/softgpu.h"

namespace gpuloom::executor {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

// await: until *word is not 0, 100 µs at a time. rest: for 10 ms.
constexpr std::string_view kProgram = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry await(.param .u64 word)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [word];
LOOP:
  nanosleep.u32 100000;
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra LOOP;
  ret;
}
.visible .entry rest(.param .u64 word)
{
  .reg .b64 %rd<4>;
  .reg .pred %p1;
  mov.u64 %rd2, %globaltimer;
LOOP:
  nanosleep.u32 100000;
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd1, %rd3, %rd2;
  setp.lt.u64 %p1, %rd1, 10000000;
  @%p1 bra LOOP;
  ret;
}
)";

constexpr uint32_t kAwait = 1;
constexpr uint32_t kRest = 2;
// Whatever they are: the scheduler knows what to do with them.
constexpr control::KernelTerms kLimits{1000, 0};

class LongKernelsTest : public ::testing::Test {
 protected:
  // An endless kernel must not outlive the test.
  ~LongKernelsTest() override { Release(); }

  TestingTenant* Add() {
    tenants_.push_back(scheduler_.AddTenant());
    TestingTenant* tenant = tenants_.back().get();
    EXPECT_EQ(tenant->ready.ok, 1u) << tenant->ready.message;
    EXPECT_TRUE(tenant->LoadKernel(1, kAwait, "await", kProgram));
    const std::string_view name = "rest";
    EXPECT_EQ(
        tenant->Call<wire::KernelGet>({LibraryId{1}, KernelId{kRest}}, nullptr,
                                      {reinterpret_cast<const uint8_t*>(name.data()), name.size()}),
        CUDA_SUCCESS);
    return tenant;
  }
  // A kernel that runs until Release.
  Ticket Await(TestingTenant* tenant, uint32_t stream = 0) {
    const uint64_t word = WordOf(tenant);
    return tenant->Launch(stream, kAwait, {reinterpret_cast<const uint8_t*>(&word), 8});
  }
  static Ticket Rest(TestingTenant* tenant, uint32_t stream = 0) {
    const uint64_t unused = 0;
    return tenant->Launch(stream, kRest, {reinterpret_cast<const uint8_t*>(&unused), 8});
  }
  uint64_t WordOf(TestingTenant* tenant) {
    for (const Word& word : words_) {
      if (word.tenant == tenant) return word.address;
    }
    const uint64_t address = tenant->Alloc(4096);
    EXPECT_NE(address, 0u);
    EXPECT_TRUE(tenant->WaitDone(0, tenant->Post<wire::Fill>({StreamId{0}, 4, 0, 0, address, 1})));
    words_.push_back({tenant, address});
    return address;
  }
  // Whether its executor still serves or not, nothing of it must run when the next test loads its program.
  void Release() {
    for (const Word& word : words_) {
      std::atomic_ref(*reinterpret_cast<uint32_t*>(word.address)).store(1);  // softgpu's memory
    }
    words_.clear();
  }
  // Nothing is said of the tenant in a second and more in which the executor looks at its kernels. What it says of
  // them comes before the counters of the same time: another tenant's, which is held with work, tell how long it waits.
  bool Silent(const TestingTenant& tenant) {
    scheduler_.kernels = kLimits;
    TestingTenant* const held = Add();
    EXPECT_TRUE(scheduler_.WaitHeld(scheduler_.Hold(*held, true)));
    Rest(held);
    const auto held_ns = [&] { return scheduler_.CountersOf(*held).time.held_ns; };
    EXPECT_TRUE(held->Wait([&] { return held_ns() != 0; }));
    const uint64_t from_ns = held_ns();
    EXPECT_TRUE(held->Wait([&] { return held_ns() >= from_ns + 1'500'000'000; }));
    return !scheduler_.LongKernelOf(tenant).has_value();
  }
  // Keeps short kernels queued in the stream until something is said of the culprit.
  std::optional<control::LongKernel> KeepBusyUntilReported(TestingTenant* busy, uint32_t stream,
                                                           const TestingTenant& culprit) {
    std::deque<Ticket> queued;
    const auto until = steady_clock::now() + std::chrono::seconds(60);
    while (!scheduler_.LongKernelOf(culprit).has_value() && steady_clock::now() < until) {
      if (queued.size() < 4) queued.push_back(Rest(busy, stream));
      EXPECT_TRUE(busy->WaitDone(stream, queued.front()));
      queued.pop_front();
    }
    return scheduler_.LongKernelOf(culprit);
  }

  struct Word {
    TestingTenant* tenant;
    uint64_t address;
  };
  std::vector<Word> words_;
  TestingScheduler scheduler_{SoftGpu(GPULOOM_SOFTGPU_LIBRARY)};
  std::vector<std::unique_ptr<TestingTenant>> tenants_;
};

TEST_F(LongKernelsTest, AnEndlessKernelIsToldByItsName) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  const Ticket launch = Await(tenant);
  const auto told = scheduler_.WaitLongKernel(*tenant);
  ASSERT_TRUE(told.has_value());
  EXPECT_STREQ(told->function, "await");
  EXPECT_EQ(told->launches, 1u);
  EXPECT_GE(told->ran_ns, 1'000'000'000u);
  // Again, with what it has run by then.
  EXPECT_TRUE(
      tenant->Wait([&] { return scheduler_.LongKernelOf(*tenant)->ran_ns > told->ran_ns; }));
  EXPECT_EQ(scheduler_.LongKernelOf(*tenant)->kernel, told->kernel);
  Release();
  EXPECT_TRUE(tenant->WaitDone(0, launch));
}

TEST_F(LongKernelsTest, WithoutALimitNothingIsToldUntilThereIsOne) {
  TestingTenant* const tenant = Add();
  Await(tenant);
  EXPECT_TRUE(Silent(*tenant));
  scheduler_.SetShares(*tenant, {}, kLimits);
  EXPECT_TRUE(scheduler_.WaitLongKernel(*tenant).has_value());
}

TEST_F(LongKernelsTest, ManyShortKernelsAreNone) {
  scheduler_.kernels = kLimits;
  // Where the machine stalls one of them may be. All of them together would be each time.
  EXPECT_TRUE(scheduler_.WaitUntil([&] {
    TestingTenant* const tenant = Add();
    Ticket last{};
    // Four seconds of them, all queued at once.
    for (int i = 0; i < 400; ++i) last = Rest(tenant);
    EXPECT_TRUE(tenant->WaitDone(0, last));
    const auto told = scheduler_.LongKernelOf(*tenant);
    return told.value_or(control::LongKernel{}).ran_ns < 3'000'000'000;
  }));
}

TEST_F(LongKernelsTest, Malicious_AKernelInAGraphIsTold) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  const uint64_t word = WordOf(tenant);
  const std::span<const uint8_t> params{reinterpret_cast<const uint8_t*>(&word), 8};
  TestingGraph graph;
  graph.AddKernel(kRest, params);
  graph.AddKernel(kAwait, params);
  graph.AddEdge(0, 1);
  ASSERT_EQ(tenant->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0},
                                                 nullptr, graph.Block()),
            CUDA_SUCCESS);
  tenant->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  const auto told = scheduler_.WaitLongKernel(*tenant);
  ASSERT_TRUE(told.has_value());
  EXPECT_EQ(told->launches, 1u);
  EXPECT_STREQ(told->function, "");
}

TEST_F(LongKernelsTest, Malicious_ACooperativeKernelIsTold) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  const uint64_t word = WordOf(tenant);
  wire::LaunchEx::Request request{};
  request.kernel = KernelId{kAwait};
  for (int i = 0; i < 3; ++i) request.grid[i] = request.block[i] = 1;
  request.attributes.set = 1u << CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  request.attributes.cooperative = 1;
  tenant->Post<wire::LaunchEx>(request, {reinterpret_cast<const uint8_t*>(&word), 8});
  const auto told = scheduler_.WaitLongKernel(*tenant);
  ASSERT_TRUE(told.has_value());
  EXPECT_STREQ(told->function, "await");
}

TEST_F(LongKernelsTest, AGraphThatWaitsForAHostFunctionIsNoKernel) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  const uint64_t word = 0;
  const std::span<const uint8_t> params{reinterpret_cast<const uint8_t*>(&word), 8};
  TestingGraph graph;
  graph.AddKernel(kRest, params);
  graph.AddHostCall(1);
  graph.AddKernel(kRest, params);
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  ASSERT_EQ(tenant->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0},
                                                 nullptr, graph.Block()),
            CUDA_SUCCESS);
  const Ticket launch = tenant->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  EXPECT_TRUE(tenant->Wait([&] { return tenant->reader.host_functions_due() == 1; }));
  EXPECT_TRUE(Silent(*tenant));
  tenant->writer.PublishHostFunctionsDone(1);
  channel::RingDoorbell(tenant->doorbell.get());
  EXPECT_TRUE(tenant->WaitDone(0, launch));
}

TEST_F(LongKernelsTest, Malicious_ShortKernelsOfItsOwnHideNone) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  ASSERT_TRUE(tenant->CreateStream(1, true));
  Await(tenant);
  EXPECT_TRUE(KeepBusyUntilReported(tenant, 1, *tenant).has_value());
}

TEST_F(LongKernelsTest, Malicious_NeighboursKernelsHideNoneAndAreNotTold) {
  scheduler_.kernels = kLimits;
  TestingTenant* const culprit = Add();
  TestingTenant* const honest = Add();
  Await(culprit);
  EXPECT_TRUE(KeepBusyUntilReported(honest, 0, *culprit).has_value());
  EXPECT_FALSE(scheduler_.LongKernelOf(*honest).has_value());
}

TEST_F(LongKernelsTest, WhatCameBehindAnothersEndlessKernelIsNotTold) {
  scheduler_.kernels = kLimits;
  TestingTenant* const culprit = Add();
  TestingTenant* const behind = Add();
  WordOf(behind);
  WordOf(culprit);
  const Ticket first = Rest(culprit);
  Await(culprit);
  EXPECT_TRUE(culprit->WaitDone(0, first));
  std::this_thread::sleep_for(milliseconds(1));  // longer than what counts as together
  // The ring thread begins another round since then: the answer is the scheduler's.
  EXPECT_EQ(behind->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  // On a device that is full it would wait; the executor cannot see whether it does.
  Await(behind);
  ASSERT_TRUE(scheduler_.WaitLongKernel(*culprit).has_value());
  EXPECT_TRUE(Silent(*behind));
}

TEST_F(LongKernelsTest, WhatWaitsForItsOwnOtherStreamIsNotTold) {
  scheduler_.kernels = kLimits;
  TestingTenant* const tenant = Add();
  ASSERT_TRUE(tenant->CreateStream(1, false));
  Await(tenant, 1);
  // The legacy stream waits for all others.
  const Ticket last = Rest(tenant, 0);
  const auto told = scheduler_.WaitLongKernel(*tenant);
  ASSERT_TRUE(told.has_value());
  EXPECT_TRUE(tenant->Wait([&] {
    const auto again = scheduler_.LongKernelOf(*tenant);
    EXPECT_STREQ(again->function, "await");
    return again->ran_ns >= told->ran_ns + 1'000'000'000;
  }));
  Release();
  EXPECT_TRUE(tenant->WaitDone(0, last));
}

TEST_F(LongKernelsTest, OneThatMustEndIsToldToItsProgramAloneAndEndsTheExecutor) {
  scheduler_.kernels = {0, 1000};
  TestingTenant* const culprit = Add();
  TestingTenant* const neighbour = Add();
  scheduler_.EndLongKernels("your kernel ran for too long\n");
  Await(culprit);
  const auto fault = scheduler_.WaitFault();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->result, static_cast<uint32_t>(CUDA_ERROR_LAUNCH_TIMEOUT));
  EXPECT_EQ(fault->session_id, culprit->order.session_id);
  EXPECT_TRUE(scheduler_.WaitLoopEnd(std::chrono::seconds(60)));
  EXPECT_EQ(culprit->reader.fault(), static_cast<uint32_t>(CUDA_ERROR_LAUNCH_TIMEOUT));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(culprit->reader.fault_text()),
                             culprit->reader.fault_text_bytes()),
            "your kernel ran for too long\n");
  EXPECT_EQ(neighbour->reader.fault(), 0u);
}

}  // namespace
}  // namespace gpuloom::executor
