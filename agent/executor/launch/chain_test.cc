// SPDX-License-Identifier: Apache-2.0
// Launches by graphs against a driver that writes down what it is asked, and that refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <set>
#include <thread>

#include "agent/executor/launch/chunk.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

class ChainTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx)); }

  // Launches pile up behind a device that does nothing for a while.
  bool Burst(int launches) {
    TestingDriver::Hold();
    Ticket last{};
    for (int i = 0; i < launches; ++i) last = tenant_->LaunchPlain(0, 1);
    const bool have_come = tenant_->Call<wire::MemInfo>({}) == CUDA_SUCCESS;
    TestingDriver::Release();
    return have_come && tenant_->WaitDone(0, last);
  }
  static size_t Count(const std::vector<std::string>& calls, std::string_view what) {
    return static_cast<size_t>(
        std::count_if(calls.begin(), calls.end(),
                      [&](const std::string& call) { return call.starts_with(what); }));
  }
  // Until chains are there and used.
  bool BurstsGoByGraphs() {
    return TestingScheduler::WaitUntil([&] {
      TestingDriver::TakeCalls();
      EXPECT_TRUE(Burst(640));
      const auto calls = TestingDriver::TakeCalls();
      return Count(calls, "graph") >= 5 && Count(calls, "launch") < 320;
    });
  }

  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, true};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

TEST_F(ChainTest, WhatPilesUpGoesByGraphs) {
  EXPECT_TRUE(BurstsGoByGraphs());
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, NothingIsBatchedWhenThatIsTurnedOff) {
  TestingScheduler plain(driver_, false);
  auto tenant = plain.AddTenant();
  ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
  TestingDriver::TakeCalls();
  Ticket last{};
  for (int i = 0; i < 640; ++i) last = tenant->LaunchPlain(0, 1);
  ASSERT_TRUE(tenant->WaitDone(0, last));
  EXPECT_EQ(Count(TestingDriver::TakeCalls(), "launch"), 640u);
}

TEST_F(ChainTest, KernelsWithoutParametersGoByGraphs) {
  Driver driver = driver_;
  driver.cuKernelGetParamInfo = [](CUkernel, size_t, size_t*, size_t*) {
    return CUDA_ERROR_INVALID_VALUE;
  };
  TestingScheduler scheduler(driver, true);
  tenant_ = scheduler.AddTenant();
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  for (const int launches : {1, 64}) {
    EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
      TestingDriver::TakeCalls();
      Ticket last{};
      for (int i = 0; i < launches; ++i) last = tenant_->Launch(0, 1, {});
      return !tenant_->WaitDone(0, last) || TestingDriver::WasCalled("graph");
    })) << launches;
  }
  EXPECT_EQ(tenant_->reader.fatal(), wire::Fatal::kNone);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
  tenant_.reset();
}

TEST_F(ChainTest, WhatAGraphRefusesGoesPlainly) {
  ASSERT_TRUE(BurstsGoByGraphs());
  TestingDriver::RefuseGraphs(CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_TRUE(Burst(640));
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_EQ(Count(calls, "graph"), 0u);
  EXPECT_EQ(Count(calls, "launch"), 640u);
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, AnotherSessionUsesWhatOneHasLeft) {
  ASSERT_TRUE(BurstsGoByGraphs());
  scheduler_.RemoveTenant(*tenant_);
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  tenant_ = scheduler_.AddTenant();
  ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_TRUE(BurstsGoByGraphs());
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
}

TEST_F(ChainTest, AttributesOfAKernelThatChangeAreNotForgottenByGraphs) {
  ASSERT_TRUE(BurstsGoByGraphs());
  ASSERT_EQ(tenant_->Call<wire::KernelSetAttribute>(
                {KernelId{1}, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 4096}),
            CUDA_SUCCESS);
  TestingDriver::TakeCalls();
  // Every node that is used is set again, as soon as a burst goes by graphs.
  size_t updates = 0;
  EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
    EXPECT_TRUE(Burst(640));
    updates += Count(TestingDriver::TakeCalls(), "update");
    return updates > 8;
  })) << updates;
}

// Launches of another thread than the one that asks for events wait here while it is closed.
struct Gate {
  std::atomic<bool> closed{false};
  std::atomic<int> waiting{0};
  void Pass() {
    if (is_ring_thread) return;
    ++waiting;
    while (closed) std::this_thread::yield();
    --waiting;
  }
  static thread_local bool is_ring_thread;
};
thread_local bool Gate::is_ring_thread = false;
Gate gate;
Driver behind_gate;

const Driver& GatedDriver() {
  behind_gate = TestingDriver::Reset();
  static Driver driver;
  driver = behind_gate;
  driver.cuEventQuery = [](CUevent event) {
    Gate::is_ring_thread = true;
    return behind_gate.cuEventQuery(event);
  };
  driver.cuLaunchKernel = [](CUfunction function, unsigned x, unsigned y, unsigned z, unsigned bx,
                             unsigned by, unsigned bz, unsigned shared, CUstream stream,
                             void** params, void** extra) {
    gate.Pass();
    return behind_gate.cuLaunchKernel(function, x, y, z, bx, by, bz, shared, stream, params, extra);
  };
  driver.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    gate.Pass();
    return behind_gate.cuGraphLaunch(exec, stream);
  };
  return driver;
}

TEST(ChainThreadsTest, NothingIsDoneBeforeItHasBeenLaunched) {
  TestingScheduler scheduler(GatedDriver(), true, 2);
  auto tenant = scheduler.AddTenant();
  auto neighbour = scheduler.AddTenant();
  const uint64_t memory = neighbour->Alloc(4096);
  ASSERT_NE(memory, 0u);
  ASSERT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
  // The ring thread asks for an event.
  ASSERT_TRUE(tenant->WaitDone(0, tenant->LaunchPlain(0, 1)));
  const auto neighbour_works = [&] {
    return neighbour->WaitDone(0, neighbour->Post<wire::Fill>({StreamId{0}, 4, 7, 0, memory, 1}));
  };
  bool waited = false;
  for (int round = 0; (round < 200 || !waited) && !HasFailure(); ++round) {
    ASSERT_TRUE(neighbour_works());
    gate.closed = true;
    // A whole chunk, which has a mark of its own.
    Ticket last{};
    for (uint32_t i = 0; i < kMaxChunkLaunches; ++i) last = tenant->LaunchPlain(0, 1);
    // The ring thread looks around meanwhile.
    bool works = true;
    for (int i = 0; i < 5 && works; ++i) works = neighbour_works();
    waited |= gate.waiting != 0;
    if (tenant->reader.Done(StreamId{0}, last)) {
      EXPECT_EQ(gate.waiting, 0);
    }
    gate.closed = false;
    ASSERT_TRUE(works);
    ASSERT_TRUE(tenant->WaitDone(0, last));
  }
}

// Sequences that have never come up, each when the device has nothing of the stream.
TEST(ChainThreadsTest, WhoNeverRepeatsItselfHasChainsRewrittenBesideOthers) {
  TestingScheduler scheduler(TestingDriver::Reset(), true, 2);
  const auto tenant = scheduler.AddTenant();
  const auto neighbour = scheduler.AddTenant();
  for (const auto& each : {tenant.get(), neighbour.get()}) {
    ASSERT_TRUE(each->LoadKernel(1, 1, "k", kEmptyPtx));
  }
  std::atomic<bool> works{true};
  std::thread at_work([&] {
    while (works && neighbour->WaitDone(0, neighbour->LaunchPlain(0, 1))) {
    }
  });
  TestingDriver::TakeCalls();
  constexpr int kChunks = 100;
  uint32_t next = 1;
  for (int i = 0; i < kChunks; ++i) {
    // Read while it is held, so that they go together.
    EXPECT_TRUE(scheduler.WaitHeld(scheduler.Hold(*tenant, true)));
    Ticket last{};
    for (uint32_t launch = 0; launch < kMinChunkLaunches - 4; ++launch) {
      last = tenant->Post<wire::Launch>({StreamId{0}, KernelId{1}, {next++, 1, 1}, {1, 1, 1}, 0, 0},
                                        PlainParams());
    }
    EXPECT_EQ(tenant->Call<wire::MemInfo>({}), CUDA_SUCCESS);
    scheduler.Hold(*tenant, false);
    EXPECT_TRUE(tenant->WaitDone(0, last));
  }
  works = false;
  at_work.join();
  const auto calls = TestingDriver::TakeCalls();
  // Of all nodes, but for the first chunks and where the neighbour was not at work.
  const auto updates = std::count_if(calls.begin(), calls.end(), [](const std::string& call) {
    return call.starts_with("update");
  });
  EXPECT_GT(updates, kChunks / 4 * (kMinChunkLaunches - 4));
  EXPECT_EQ(tenant->reader.async_error_count(), 0u);
}

// The context of each chain's nodes, and which streams are a partition's: what CUDA does not say afterwards.
struct Contexts {
  Mutex mutex;
  std::map<CUgraph, CUcontext> of_graph GPULOOM_GUARDED_BY(mutex);
  std::map<CUgraphExec, CUcontext> of_exec GPULOOM_GUARDED_BY(mutex);
  std::map<CUstream, CUcontext> of_stream GPULOOM_GUARDED_BY(mutex);  // of partitions' streams
  std::set<CUcontext> of_partitions GPULOOM_GUARDED_BY(mutex);
  std::map<CUcontext, size_t> launches GPULOOM_GUARDED_BY(mutex);
  size_t elsewhere GPULOOM_GUARDED_BY(mutex) = 0;  // of them, in a stream of another context
};
Contexts contexts;
Driver before_contexts;

const Driver& DriverOfContexts() {
  before_contexts = TestingDriver::Reset();
  static Driver driver;
  driver = before_contexts;
  driver.cuGraphAddKernelNode_v2 = [](CUgraphNode* node, CUgraph graph, const CUgraphNode* after,
                                      size_t count, const CUDA_KERNEL_NODE_PARAMS_v2* params) {
    const MutexLock lock(contexts.mutex);
    contexts.of_graph[graph] = params->ctx;
    return before_contexts.cuGraphAddKernelNode_v2(node, graph, after, count, params);
  };
  driver.cuGraphInstantiateWithFlags = [](CUgraphExec* exec, CUgraph graph,
                                          unsigned long long flags) {
    const CUresult result = before_contexts.cuGraphInstantiateWithFlags(exec, graph, flags);
    const MutexLock lock(contexts.mutex);
    contexts.of_exec[*exec] = contexts.of_graph[graph];
    return result;
  };
  driver.cuGreenCtxStreamCreate = [](CUstream* stream, CUgreenCtx green, unsigned flags,
                                     int priority) {
    const CUresult result = before_contexts.cuGreenCtxStreamCreate(stream, green, flags, priority);
    const MutexLock lock(contexts.mutex);
    CUcontext context = nullptr;
    (void)before_contexts.cuCtxFromGreenCtx(&context, green);
    contexts.of_stream[*stream] = context;
    contexts.of_partitions.insert(context);
    return result;
  };
  driver.cuGraphLaunch = [](CUgraphExec exec, CUstream stream) {
    {
      const MutexLock lock(contexts.mutex);
      const CUcontext of_exec = contexts.of_exec[exec];
      ++contexts.launches[of_exec];
      const auto of_stream = contexts.of_stream.find(stream);
      contexts.elsewhere += of_stream == contexts.of_stream.end()
                                ? contexts.of_partitions.contains(of_exec)
                                : of_exec != of_stream->second;
    }
    return before_contexts.cuGraphLaunch(exec, stream);
  };
  return driver;
}

// A chain keeps the multiprocessors that its nodes were made for: those of one partition never serve another's launches, though
// kernels and parameters are the same.
TEST(ChainPartitionsTest, EachPartitionHasChainsOfItsOwn) {
  TestingScheduler scheduler(DriverOfContexts(), true);
  const auto add = [&](const control::PartitionTerms& terms) {
    scheduler.partition = terms;
    auto tenant = scheduler.AddTenant();
    EXPECT_TRUE(tenant->LoadKernel(1, 1, "k", kEmptyPtx));
    return tenant;
  };
  const auto free = add({});
  const auto quarter = add({0, 0, 25, 0});
  const auto half = add({0, 0, 50, 0});
  const auto burst = [](TestingTenant& tenant) {
    TestingDriver::Hold();
    Ticket last{};
    for (int i = 0; i < 640; ++i) last = tenant.LaunchPlain(0, 1);
    const bool have_come = tenant.Call<wire::MemInfo>({}) == CUDA_SUCCESS;
    TestingDriver::Release();
    return have_come && tenant.WaitDone(0, last);
  };
  const auto served = [] {
    const MutexLock lock(contexts.mutex);
    return static_cast<size_t>(
        std::count_if(contexts.launches.begin(), contexts.launches.end(),
                      [](const auto& of_context) { return of_context.second >= 5; }));
  };
  EXPECT_TRUE(TestingScheduler::WaitUntil([&] {
    for (TestingTenant* tenant : {free.get(), quarter.get(), half.get()}) {
      EXPECT_TRUE(burst(*tenant));
    }
    return served() == 3;
  })) << "whoever has a partition launches by chains, too";
  const MutexLock lock(contexts.mutex);
  EXPECT_EQ(contexts.elsewhere, 0u);
  for (const auto& tenant : {free.get(), quarter.get(), half.get()}) {
    EXPECT_EQ(tenant->reader.async_error_count(), 0u);
  }
}

}  // namespace
}  // namespace gpuloom::executor
