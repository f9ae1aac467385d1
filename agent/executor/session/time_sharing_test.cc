// SPDX-License-Identifier: Apache-2.0
// The real loop on the software GPU with tenants that share its time: who is charged how much, and that nobody is kept
// from going on. Kernels take real time there, so only shares are looked at, never durations.

#include "agent/executor/session/time_sharing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

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

// rest: for so many nanoseconds, 100 µs at a time, which takes no processor. await: until *word is not 0. put: makes *word 1.
// spin: for so many nanoseconds.
constexpr std::string_view kProgram = R"(
.version 8.0
.target sm_90
.address_size 64
.visible .entry rest(.param .u64 length)
{
  .reg .b64 %rd<5>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [length];
  mov.u64 %rd2, %globaltimer;
LOOP:
  nanosleep.u32 100000;
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra LOOP;
  ret;
}
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
.visible .entry put(.param .u64 word)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [word];
  mov.u32 %r1, 1;
  st.volatile.global.u32 [%rd1], %r1;
  ret;
}
.visible .entry spin(.param .u64 length)
{
  .reg .b64 %rd<5>;
  .reg .pred %p1;
  ld.param.u64 %rd1, [length];
  mov.u64 %rd2, %globaltimer;
LOOP:
  mov.u64 %rd3, %globaltimer;
  sub.s64 %rd4, %rd3, %rd2;
  setp.lt.u64 %p1, %rd4, %rd1;
  @%p1 bra LOOP;
  ret;
}
)";

constexpr uint32_t kRest = 1;
constexpr uint32_t kAwait = 2;
constexpr uint32_t kPut = 3;
constexpr uint32_t kSpin = 4;

Ticket Launch(TestingTenant* tenant, uint32_t stream, uint32_t kernel, uint64_t param) {
  return tenant->Launch(stream, kernel, {reinterpret_cast<const uint8_t*>(&param), 8});
}

class TimeSharingTest : public ::testing::Test {
 protected:
  explicit TimeSharingTest(const Driver& driver = SoftGpu(GPULOOM_SOFTGPU_LIBRARY),
                           bool batches = true)
      : scheduler_(driver, batches) {}

  std::unique_ptr<TestingTenant> Add(const control::ShareTerms& terms) {
    scheduler_.shares = terms;
    auto tenant = scheduler_.AddTenant();
    EXPECT_EQ(tenant->ready.ok, 1u) << tenant->ready.message;
    EXPECT_TRUE(tenant->LoadKernel(1, kRest, "rest", kProgram));
    const auto get = [&](uint32_t id, std::string_view name) {
      return tenant->Call<wire::KernelGet>(
          {LibraryId{1}, KernelId{id}}, nullptr,
          {reinterpret_cast<const uint8_t*>(name.data()), name.size()});
    };
    EXPECT_EQ(get(kAwait, "await"), CUDA_SUCCESS);
    EXPECT_EQ(get(kPut, "put"), CUDA_SUCCESS);
    EXPECT_EQ(get(kSpin, "spin"), CUDA_SUCCESS);
    return tenant;
  }

  // What the tenant wants always: kernels of this length, and so many of them queued.
  struct Work {
    TestingTenant* tenant;
    uint64_t kernel_ns;
    size_t depth = 16;
  };
  static void Keep(const Work& work, steady_clock::time_point until) {
    std::deque<Ticket> queued;
    while (steady_clock::now() < until) {
      if (queued.size() < work.depth) {
        queued.push_back(Launch(work.tenant, 0, kRest, work.kernel_ns));
      }
      while (!queued.empty() && work.tenant->reader.Done(StreamId{0}, queued.front())) {
        queued.pop_front();
      }
      if (queued.size() == work.depth) std::this_thread::yield();
    }
    for (const Ticket ticket : queued) ASSERT_TRUE(work.tenant->WaitDone(0, ticket));
  }
  // A neighbour that always wants the device.
  class Busy {
   public:
    explicit Busy(TestingTenant* tenant)
        : thread_([this, tenant] {
            while (!stop_) Keep({tenant, 300'000}, steady_clock::now() + milliseconds(50));
          }) {}
    ~Busy() {
      stop_ = true;
      thread_.join();
    }

   private:
    std::atomic<bool> stop_{false};
    std::thread thread_;
  };
  static void KeepAll(const std::vector<Work>& all, milliseconds length) {
    const auto until = steady_clock::now() + length;
    std::vector<std::thread> threads;
    for (const Work& work : all) threads.emplace_back([&work, until] { Keep(work, until); });
    for (std::thread& thread : threads) thread.join();
  }

  // What it was charged in all.
  uint64_t End(TestingTenant* tenant) {
    tenant->doorbell.Reset();
    const auto ended = scheduler_.WaitEnded(tenant->order.session_id);
    EXPECT_TRUE(ended.has_value());
    return ended.has_value() ? ended->time.compute_ns : 0;
  }

  // A tenant that always wants something: its terms when it begins, and those said afterwards.
  struct Side {
    control::ShareTerms terms;
    uint64_t kernel_ns;
    size_t depth = 16;
    std::optional<control::ShareTerms> later = std::nullopt;
  };
  // Whether what the one is charged against the other lies between these, in all rounds so far: a kernel is charged what
  // it lasted, so a machine that stands still makes one of them dearer, but not always the same one.
  bool Divides(const Side& one, const Side& other, double least, double most) {
    double of_one = 0, of_other = 0;
    return TestingScheduler::WaitUntil([&] {
      const auto first = Add(one.terms);
      const auto second = Add(other.terms);
      if (one.later) scheduler_.SetShares(*first, *one.later);
      KeepAll(
          {{first.get(), one.kernel_ns, one.depth}, {second.get(), other.kernel_ns, other.depth}},
          milliseconds(2000));
      of_one += static_cast<double>(End(first.get()));
      of_other += static_cast<double>(End(second.get()));
      printf("charged: %.0f and %.0f ns\n", of_one, of_other);
      return of_one > least * of_other && of_one < most * of_other;
    });
  }
  // Whether a tenant with a ceiling of a fifth keeps it, in all rounds so far: a fifth, a bucket of 100 ms of it, and what was
  // in flight when that was empty.
  template <typename Use>
  bool KeepsAFifth(Use use) {
    double used = 0, took = 0;
    return TestingScheduler::WaitUntil([&] {
      const auto tenant = Add({0, 0, 0, 0, 200});
      const auto begun = steady_clock::now();
      use(tenant.get());
      took += std::chrono::duration<double, std::nano>(steady_clock::now() - begun).count();
      used += static_cast<double>(End(tenant.get()));
      printf("charged: %.0f of %.0f ns\n", used, took);
      return used > 0.05 * took && used < 0.5 * took;
    });
  }

  TestingScheduler scheduler_;
};

control::ShareTerms Weight(uint32_t weight) { return {weight, 0, 0, 0, 0}; }

TEST_F(TimeSharingTest, TimeIsDividedByWeight) {
  // Without weights it is 1. How exact it is the arbiter's properties show; here a busy machine takes its part.
  EXPECT_TRUE(Divides({Weight(300), 1'000'000}, {Weight(100), 1'000'000}, 1.5, 8));
}

// And low is rescued, for a tenth of the time at most; without classes it would get half.
TEST_F(TimeSharingTest, HighGoesBeforeLow) {
  // A busy machine makes gaps in high's work.
  EXPECT_TRUE(Divides({{0, 0, 1, 0, 0}, 1'000'000}, {{0, 0, 3, 0, 0}, 1'000'000}, 2, 1e6));
}

// Without a bound on what is in flight the second would get nearly all.
TEST_F(TimeSharingTest, ShortKernelsGetTheirShareBesideLongOnes) {
  // It would be 0.04.
  EXPECT_TRUE(Divides({Weight(100), 100'000, 32}, {Weight(100), 5'000'000}, 0.25, 4));
}

TEST_F(TimeSharingTest, ACeilingHoldsOnAnIdleDevice) {
  EXPECT_TRUE(KeepsAFifth([](TestingTenant* tenant) {
    KeepAll({{tenant, 1'000'000, 4}}, milliseconds(1000));
  }));
}

// While the other's first kernel prints, the one with the ceiling comes into the printers' line.
TEST_F(TimeSharingTest, WhoHasUsedUpItsTimeKeepsNobodyFromPrinting) {
  constexpr std::string_view kNamesPrintf =
      ".extern .func (.param .b32 r) vprintf(.param .b64 f, .param .b64 a);\n";
  std::string printing(kProgram);
  printing.insert(printing.find(".visible"), kNamesPrintf);
  constexpr uint32_t kPrints = 9;
  const auto bound = Add({0, 0, 0, 0, 20});
  const auto other = Add({});
  for (TestingTenant* tenant : {bound.get(), other.get()}) {
    ASSERT_TRUE(tenant->LoadKernel(9, kPrints, "rest", printing));
  }
  // Its time for some seconds.
  ASSERT_TRUE(bound->WaitDone(0, Launch(bound.get(), 0, kRest, 100'000'000)));
  Launch(other.get(), 0, kPrints, 100'000'000);
  const Ticket waits = Launch(bound.get(), 0, kPrints, 1'000);
  ASSERT_EQ(bound->Call<wire::MemInfo>({}), CUDA_SUCCESS);
  EXPECT_TRUE(other->WaitDone(0, Launch(other.get(), 0, kPrints, 1'000)));
  EXPECT_FALSE(bound->reader.Done(StreamId{0}, waits));
}

TEST_F(TimeSharingTest, Malicious_WhoWaitsForEachKernelIsBoundToo) {
  EXPECT_TRUE(KeepsAFifth([](TestingTenant* tenant) {
    const auto until = steady_clock::now() + milliseconds(1000);
    while (steady_clock::now() < until) {
      ASSERT_TRUE(tenant->WaitDone(0, Launch(tenant, 0, kRest, 10'000'000)));
    }
  }));
}

TEST_F(TimeSharingTest, AStreamThatIsKeptFullDoesNotKeepTheOthersOfItsProgram) {
  auto tenant = Add(Weight(100));
  auto neighbour = Add(Weight(100));
  ASSERT_TRUE(tenant->CreateStream(1, true));
  ASSERT_TRUE(tenant->CreateStream(2, true));
  const Busy others(neighbour.get());
  std::deque<Ticket> full;
  const auto fill = [&] {
    while (full.size() < 32) full.push_back(Launch(tenant.get(), 2, kRest, 200'000));
    while (!full.empty() && tenant->reader.Done(StreamId{2}, full.front())) full.pop_front();
  };
  for (int i = 0; i < 10; ++i) {
    fill();
    const Ticket wanted = Launch(tenant.get(), 1, kRest, 200'000);
    EXPECT_TRUE(tenant->Wait([&] {
      fill();
      return tenant->reader.Done(StreamId{1}, wanted);
    }));
  }
}

// The scheduler tells an executor of no change while the allocation has no process there, and what an ended one had is known
// for a while.
TEST(TimeSharing, ANewProcessHasThePolicyOfItsOwnBeginning) {
  TimeSharing sharing(true, [] { return uint64_t{1}; });
  control::AddSession order{};
  order.session_id = order.allocation_id = order.namespace_id = 1;
  order.slots = 1;
  order.shares.priority = 1;
  Share ended = sharing.Begin(order);
  EXPECT_EQ(sharing.ClassOf(ended), arbiter::Priority::kHigh);
  sharing.End(&ended);
  const uint32_t changes = sharing.changes();
  order.session_id = 2;
  order.shares.priority = 3;
  EXPECT_EQ(sharing.ClassOf(sharing.Begin(order)), arbiter::Priority::kLow);
  EXPECT_NE(sharing.changes(), changes) << "for the streams of its other processes";
}

TEST_F(TimeSharingTest, NewWeightsHoldForRunningTenants) {
  // Before it was 1.
  EXPECT_TRUE(Divides({Weight(100), 1'000'000, 16, Weight(400)}, {Weight(100), 1'000'000}, 2, 12));
}

// Nobody promises that kernels of two streams run side by side, and programs rely on it.
TEST_F(TimeSharingTest, AKernelMayWaitForAnotherStreamOfItsProgram) {
  auto tenant = Add(Weight(1));
  auto neighbour = Add(Weight(100));
  ASSERT_TRUE(tenant->CreateStream(1, true));
  ASSERT_TRUE(tenant->CreateStream(2, true));
  const uint64_t words = tenant->Alloc(4096);
  const Busy others(neighbour.get());
  ASSERT_TRUE(tenant->WaitDone(1, tenant->Post<wire::Fill>({StreamId{1}, 4, 0, 0, words, 1024})));
  for (uint64_t word = words; word != words + 5 * 4; word += 4) {
    const Ticket waits = Launch(tenant.get(), 1, kAwait, word);
    EXPECT_TRUE(tenant->Never([&] { return tenant->reader.Done(StreamId{1}, waits); }));
    Launch(tenant.get(), 2, kPut, word);
    EXPECT_TRUE(tenant->WaitDone(1, waits));
  }
}

// Held again and again, as for quiet moments that others ask for, and never free for as long as it would have to wait.
TEST_F(TimeSharingTest, WhatAKernelWaitsForGoesThoughItsSessionIsOftenHeld) {
  auto tenant = Add(Weight(1));
  auto neighbour = Add(Weight(100));
  ASSERT_TRUE(tenant->CreateStream(1, true));
  ASSERT_TRUE(tenant->CreateStream(2, true));
  const uint64_t word = tenant->Alloc(4096);
  ASSERT_TRUE(tenant->WaitDone(1, tenant->Post<wire::Fill>({StreamId{1}, 4, 0, 0, word, 1024})));
  const Busy others(neighbour.get());
  const Ticket waits = Launch(tenant.get(), 1, kAwait, word);
  EXPECT_TRUE(tenant->Never([&] { return tenant->reader.Done(StreamId{1}, waits); }));
  scheduler_.Hold(*tenant, true);
  Launch(tenant.get(), 2, kPut, word);
  bool done = false;
  for (int i = 0; i < 1000 && !done; ++i) {
    scheduler_.Hold(*tenant, i % 2 == 0);
    std::this_thread::sleep_for(milliseconds(4));
    done = tenant->reader.Done(StreamId{1}, waits);
  }
  EXPECT_TRUE(done);
  scheduler_.Hold(*tenant, false);
  EXPECT_TRUE(tenant->WaitDone(1, waits));
}

// What it has at the device for one engine waits there for its own work of another: it does not want that engine, and
// others' lead over it must not keep them away.
TEST_F(TimeSharingTest, WhoWaitsForItsOwnKernelKeepsNobodyFromCopying) {
  auto tenant = Add(Weight(100));
  auto neighbour = Add(Weight(100));
  constexpr uint64_t kBytes = 1 << 20;
  const auto pin = [](TestingTenant* it) {
    const uint64_t address = it->order.host_range_begin + (1u << 20);
    std::memset(reinterpret_cast<void*>(address), 0, kBytes);
    EXPECT_EQ(it->Call<wire::HostRegister>({wire::HostPtr{address}, kBytes}), CUDA_SUCCESS);
  };
  pin(tenant.get());
  pin(neighbour.get());
  const auto copy = [](TestingTenant* it, uint64_t from, uint64_t bytes) {
    const uint64_t to = it->order.host_range_begin + (1u << 20);
    return it->Post<wire::Copy>({StreamId{0}, wire::CopyKind::kDeviceToHost, to, from, bytes});
  };
  const uint64_t memory = tenant->Alloc(kBytes);
  const uint64_t others = neighbour->Alloc(kBytes + 4096);
  // The neighbour is behind on this engine, too.
  ASSERT_TRUE(neighbour->WaitDone(0, copy(neighbour.get(), others, 64)));
  const uint64_t word = others + kBytes;
  ASSERT_TRUE(neighbour->WaitDone(0, neighbour->Post<wire::Fill>({StreamId{0}, 4, 0, 0, word, 1})));
  ASSERT_TRUE(neighbour->CreateStream(1, true));
  // Both want the device: the arbiter is told of all that goes from now on.
  for (int i = 0; i < 50; ++i) copy(tenant.get(), memory, kBytes);
  const Ticket kernel = Launch(neighbour.get(), 0, kAwait, word);
  const Ticket behind = copy(neighbour.get(), others, 64);
  bool are_done = true;
  for (int i = 0; i < 400 && are_done; ++i) {
    are_done = tenant->WaitDone(0, copy(tenant.get(), memory, kBytes));
  }
  EXPECT_TRUE(are_done) << "beside the kernel";
  EXPECT_FALSE(neighbour->reader.Done(StreamId{0}, kernel));
  Launch(neighbour.get(), 1, kPut, word);
  EXPECT_TRUE(neighbour->WaitDone(0, behind));
}

// As loading a kernel at its first launch does.
constexpr milliseconds kLongCall{20};
std::atomic<bool> call_takes_long{false};
std::atomic<uint64_t> long_calls{0};
decltype(Driver::cuLaunchKernel) launch_kernel = nullptr;

CUresult LaunchKernelSlowly(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                            unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                            CUstream stream, void** params, void** extra) {
  if (call_takes_long.exchange(false)) {
    std::this_thread::sleep_for(kLongCall);
    ++long_calls;
  }
  return launch_kernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared, stream,
                       params, extra);
}

const Driver& SlowDriver() {
  static const Driver kDriver = [] {
    Driver driver = SoftGpu(GPULOOM_SOFTGPU_LIBRARY);
    launch_kernel = std::exchange(driver.cuLaunchKernel, &LaunchKernelSlowly);
    return driver;
  }();
  return kDriver;
}

class LongCallsTest : public TimeSharingTest {
 protected:
  LongCallsTest() : TimeSharingTest(SlowDriver(), /*batches=*/false) {}
};

// While the driver keeps the ring thread, nobody sees what ends, and the device has soon done all that it had. Whoever was
// first there was charged for all of that time, and waited for as long as all others together then needed for as much.
TEST_F(LongCallsTest, WhatTheDriverTakesForACallIsNobodysTime) {
  double charged_ns = 0, took_ns = 0, in_calls_ns = 0;
  EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
    auto tenant = Add(Weight(100));
    auto neighbour = Add(Weight(100));
    const uint64_t calls = long_calls;
    const auto begun = steady_clock::now();
    {
      const Busy others(neighbour.get());
      for (int i = 0; i < 20; ++i) {
        call_takes_long = true;
        EXPECT_TRUE(tenant->WaitDone(0, Launch(tenant.get(), 0, kRest, 300'000)));
      }
    }
    took_ns += std::chrono::duration<double, std::nano>(steady_clock::now() - begun).count();
    in_calls_ns +=
        static_cast<double>(long_calls - calls) * std::chrono::nanoseconds(kLongCall).count();
    charged_ns += static_cast<double>(End(tenant.get()) + End(neighbour.get()));
    printf("charged: %.0f of %.0f ns, %.0f in calls\n", charged_ns, took_ns, in_calls_ns);
    return charged_ns < took_ns - in_calls_ns / 2;
  }));
}

// It is submitted part by part, each of which may be marked.
TEST_F(TimeSharingTest, AGraphInPartsIsDoneWithItsLastPart) {
  auto tenant = Add(Weight(100));
  auto neighbour = Add(Weight(100));
  TestingGraph graph;
  const uint64_t rest_ns = 1'000'000;
  const std::span<const uint8_t> params{reinterpret_cast<const uint8_t*>(&rest_ns), 8};
  graph.AddKernel(kRest, params);
  graph.AddHostCall(1);
  graph.AddKernel(kRest, params);
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  ASSERT_EQ(tenant->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0},
                                                 nullptr, graph.Block()),
            CUDA_SUCCESS);
  const Busy others(neighbour.get());
  for (uint64_t n = 1; n <= 3; ++n) {
    const Ticket launch = tenant->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
    EXPECT_TRUE(tenant->Wait([&] { return tenant->reader.host_functions_due() == n; }));
    EXPECT_TRUE(tenant->Never([&] { return tenant->reader.Done(StreamId{0}, launch); }));
    tenant->writer.PublishHostFunctionsDone(n);
    channel::RingDoorbell(tenant->doorbell.get());
    EXPECT_TRUE(tenant->WaitDone(0, launch));
  }
}

}  // namespace
}  // namespace gpuloom::executor
