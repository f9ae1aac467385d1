// SPDX-License-Identifier: Apache-2.0
// Launches by graphs against a driver that writes down what it is asked, and that refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "agent/executor/launch/chunk.h"
#include "agent/executor/testing/driver.h"
#include "agent/executor/testing/peer.h"

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
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    TestingDriver::Release();
    return tenant_->WaitDone(0, last);
  }
  static size_t Count(const std::vector<std::string>& calls, std::string_view what) {
    return static_cast<size_t>(
        std::count_if(calls.begin(), calls.end(),
                      [&](const std::string& call) { return call.starts_with(what); }));
  }
  // Until chains are there and used.
  bool BurstsGoByGraphs() {
    for (int i = 0; i < 200; ++i) {
      TestingDriver::TakeCalls();
      if (!Burst(640)) return false;
      const auto calls = TestingDriver::TakeCalls();
      if (Count(calls, "graph") >= 5 && Count(calls, "launch") < 320) return true;
    }
    return false;
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
  for (int i = 0; i < 200 && updates <= 8; ++i) {
    ASSERT_TRUE(Burst(640));
    updates += Count(TestingDriver::TakeCalls(), "update");
  }
  EXPECT_GT(updates, 8u);
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

}  // namespace
}  // namespace gpuloom::executor
