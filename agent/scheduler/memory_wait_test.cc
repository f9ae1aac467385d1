// SPDX-License-Identifier: Apache-2.0
// Requests that wait for others' memory, as the policy's memoryWait allows.
#include <gtest/gtest.h>

#include "agent/scheduler/testing/scheduler_fixture.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr milliseconds kNow{0};

class MemoryWaitTest : public SchedulerTest {
 protected:
  void SetUp() override {
    Start();
    client_ = Controller();
    // 256 MiB that somebody else holds; the device has no more.
    device_.room_bytes = 256 * kMiB;
    Attach("holder", &holder_, milliseconds(0));
    holder_.SendByte('G');
    ASSERT_EQ(holder_.Answer(), 0);
  }

  void Bind(const std::string& name, milliseconds wait, uint64_t quota_bytes = 64 * kGiB) {
    control::BindAllocation bind = BindMessage(name, "domain of " + name, quota_bytes);
    bind.memory_wait_ms = static_cast<uint32_t>(wait.count());
    std::string error;
    EXPECT_TRUE(client_.BindAllocation(bind, &error)) << error;
  }
  void Attach(const std::string& name, Tenant* tenant, milliseconds wait,
              uint64_t quota_bytes = 64 * kGiB) {
    const std::string directory = Add(&client_, name);
    Bind(name, wait, quota_bytes);
    ASSERT_TRUE(tenant->Attach(directory));
    ASSERT_TRUE(tenant->accepted()) << tenant->welcome.message;
  }
  bool Waits(const std::string& name, uint32_t requests = 1) {
    return Becomes(&client_, name, [&](const control::AllocationState& state) {
      return state.memory_waiting == requests;
    });
  }

  control::Client client_;
  Tenant holder_;
};

TEST_F(MemoryWaitTest, ARequestWaitsUntilMemoryComesBack) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_TRUE(Waits("a"));
  EXPECT_EQ(tenant.Answer(kNow), -1);
  EXPECT_EQ(State(&client_, "a").memory_used_bytes, 0u) << "charged when it is there";
  EXPECT_EQ(holder_.Order('r'), 0);
  EXPECT_EQ(tenant.Answer(), 0);
  EXPECT_EQ(State(&client_, "a").memory_used_bytes, 64 * kMiB);
  EXPECT_EQ(State(&client_, "a").memory_waiting, 0u);
  EXPECT_EQ(State(&client_, "a").memory_refused_count, 0u);
}

TEST_F(MemoryWaitTest, WithoutMemoryWaitItIsRefusedAtOnce) {
  Tenant tenant;
  Attach("a", &tenant, milliseconds(0));
  EXPECT_EQ(tenant.Order('m'), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryWaitTest, ItIsOutOfMemoryAtItsTime) {
  Tenant tenant;
  Attach("a", &tenant, milliseconds(50));
  const auto begin = EventLoop::Clock::now();
  EXPECT_EQ(tenant.Order('m'), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_GE(EventLoop::Clock::now() - begin, milliseconds(50));
  EXPECT_EQ(State(&client_, "a").memory_refused_count, 0u) << "the quota has refused nothing";
  EXPECT_EQ(State(&client_, "a").memory_peak_bytes, 0u);
}

TEST_F(MemoryWaitTest, ASessionsEndGivesItsMemoryToWhoWaits) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('G');
  EXPECT_TRUE(Waits("a"));
  holder_.Leave();
  EXPECT_EQ(tenant.Answer(), 0);
}

TEST_F(MemoryWaitTest, WhatAnotherKeepsIsAskedBackBeforeAnybodyWaits) {
  EXPECT_EQ(holder_.Order('k'), 'k');
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_EQ(tenant.Answer(), 0);
}

TEST_F(MemoryWaitTest, TheQuotaIsNeverWaitedFor) {
  holder_.Leave();
  Tenant tenant;
  Attach("a", &tenant, minutes(10), 64 * kMiB);
  EXPECT_EQ(tenant.Order('m'), 0);
  EXPECT_EQ(tenant.Order('m'), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(State(&client_, "a").memory_refused_count, 1u);
}

TEST_F(MemoryWaitTest, AQuotaThatSinksMeanwhileRefuses) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('G');
  EXPECT_TRUE(Waits("a"));
  Bind("a", minutes(10), 64 * kMiB);
  EXPECT_EQ(holder_.Order('r'), 0);
  EXPECT_EQ(tenant.Answer(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tenant.Order('m'), 0);
}

TEST_F(MemoryWaitTest, AShorterWaitAppliesToWhoWaitsAlready) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_TRUE(Waits("a"));
  Bind("a", milliseconds(0));
  EXPECT_EQ(tenant.Answer(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryWaitTest, ALongerWaitThanAnHourIsRefused) {
  Add(&client_, "a");
  control::BindAllocation bind = BindMessage("a", "domain", kGiB);
  bind.memory_wait_ms = 3'600'001;
  std::string error;
  EXPECT_FALSE(client_.BindAllocation(bind, &error));
  EXPECT_THAT(error, ::testing::HasSubstr("an hour at most"));
}

TEST_F(MemoryWaitTest, ATenantThatLeavesWaitsNoMore) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_TRUE(Waits("a"));
  tenant.Leave();
  EXPECT_TRUE(Waits("a", 0));
  EXPECT_TRUE(Becomes(&client_, "a", [](const auto& state) { return state.sessions == 0; }));
}

TEST_F(MemoryWaitTest, ASessionThatItsExecutorEndsWaitsNoMore) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_TRUE(Waits("a"));
  tenant.SendByte('S');
  EXPECT_EQ(tenant.Answer(), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(MemoryWaitTest, AnExecutorThatDiesWaitsNoMore) {
  Tenant tenant;
  Attach("a", &tenant, minutes(10));
  tenant.SendByte('M');
  EXPECT_TRUE(Waits("a"));
  tenant.SendByte('x');
  EXPECT_TRUE(Waits("a", 0));
  EXPECT_EQ(holder_.Order('r'), 0);
  ExpectServed(root_ / "a");
}

TEST_F(MemoryWaitTest, NobodyWaitsBehindOneThatWaits) {
  Tenant large, small;
  Attach("a", &large, minutes(10));
  Attach("b", &small, milliseconds(0));
  large.SendByte('G');
  EXPECT_TRUE(Waits("a"));
  device_.room_bytes = 320 * kMiB;
  EXPECT_EQ(small.Order('m'), 0) << "there is room for it";
  EXPECT_EQ(large.Answer(kNow), -1);
}

TEST_F(MemoryWaitTest, Malicious_WhatTheDeviceCanNeverGiveIsRefusedAtOnce) {
  Tenant culprit;
  Attach("a", &culprit, minutes(60));
  culprit.SendByte('E');
  EXPECT_EQ(culprit.Answer(), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(State(&client_, "a").memory_waiting, 0u);
}

TEST_F(MemoryWaitTest, Malicious_ManyRequestsFillOnlyTheirOwnPartOfTheQueue) {
  Tenant culprit, honest;
  Attach("a", &culprit, minutes(60));
  Attach("b", &honest, minutes(10));
  for (size_t i = 0; i < 2 * MemoryQueue::kMaxWaitingOfAllocation; ++i) culprit.SendByte('G');
  for (size_t i = 0; i < MemoryQueue::kMaxWaitingOfAllocation; ++i) {
    ASSERT_EQ(culprit.Answer(), CUDA_ERROR_OUT_OF_MEMORY) << "what does not fit is answered";
  }
  EXPECT_TRUE(Waits("a", MemoryQueue::kMaxWaitingOfAllocation));
  honest.SendByte('M');
  EXPECT_TRUE(Waits("b"));
  device_.room_bytes = 320 * kMiB;
  // The next moment in which the queue is looked at.
  EXPECT_EQ(honest.Answer(), 0);
}

TEST_F(MemoryWaitTest, Malicious_MemoryThatComesBackInManyPiecesCostsFewTries) {
  Tenant waits, culprit;
  Attach("a", &waits, minutes(10));
  Attach("b", &culprit, milliseconds(0));
  device_.room_bytes = 320 * kMiB;
  waits.SendByte('G');
  EXPECT_TRUE(Waits("a"));
  const auto begin = EventLoop::Clock::now();
  const int before = device_.tries;
  int rounds = 0;
  for (; rounds < 500; ++rounds) {
    ASSERT_EQ(culprit.Order('m'), 0);
    ASSERT_EQ(culprit.Order('r'), 0);
  }
  const auto ms = std::chrono::ceil<milliseconds>(EventLoop::Clock::now() - begin).count();
  EXPECT_LE(device_.tries - before, rounds + ms / 10 + 10);
}

TEST_F(MemoryWaitTest, Malicious_WhoeverIsNotThereDoesNotWait) {
  Tenant liar;
  Attach("a", &liar, minutes(10));
  EXPECT_EQ(liar.Order('o'), 0) << "in others' names";
  EXPECT_EQ(State(&client_, "holder").memory_waiting, 0u);
  EXPECT_EQ(holder_.Order('r'), 0);
  ExpectServed(root_ / "a");
}

}  // namespace
}  // namespace gpuloom::scheduler
