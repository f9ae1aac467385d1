// SPDX-License-Identifier: Apache-2.0
// With a simulated device and a simulated clock.
#include "agent/scheduler/memory_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class MemoryQueueTest : public ::testing::Test {
 protected:
  // A request of session `id`, whose allocation is `allocation`.
  void Ask(uint64_t id, uint64_t size_bytes, int allocation, milliseconds wait = minutes(60)) {
    queue_.Add({&allocations_[allocation], 1, id, size_bytes, 0, now_, wait});
  }
  void Offer() {
    tried_.clear();
    queue_.Offer(now_, [this](const MemoryQueue::Request& request) {
      tried_.push_back(request.session_id);
      if (request.size_bytes > free_bytes_) return false;
      free_bytes_ -= request.size_bytes;
      granted_.push_back(request.session_id);
      return true;
    });
  }
  std::vector<uint64_t> Expired() {
    std::vector<uint64_t> ids;
    for (const auto& request : queue_.TakeExpired(now_)) ids.push_back(request.session_id);
    return ids;
  }

  MemoryQueue queue_;
  MemoryQueue::Time now_ = MemoryQueue::Time() + minutes(1);
  int allocations_[2000] = {};
  uint64_t free_bytes_ = 0;
  std::vector<uint64_t> granted_, tried_;
};

TEST_F(MemoryQueueTest, IsServedInOrderOfArrival) {
  for (int i = 1; i <= 3; ++i) Ask(static_cast<uint64_t>(i), 10, i);
  free_bytes_ = 20;
  Offer();
  EXPECT_THAT(granted_, ElementsAre(1, 2));
  free_bytes_ = 10;
  Offer();
  EXPECT_THAT(granted_, ElementsAre(1, 2, 3));
  EXPECT_TRUE(queue_.empty());
}

TEST_F(MemoryQueueTest, ASmallOneOvertakesALargeOneThatFindsNoRoom) {
  Ask(1, 100, 1);
  Ask(2, 10, 2);
  free_bytes_ = 50;
  Offer();
  EXPECT_THAT(granted_, ElementsAre(2));
}

TEST_F(MemoryQueueTest, NoneIsTriedThatIsAsLargeAsOneWithoutRoom) {
  Ask(1, 50, 1);
  Ask(2, 50, 2);
  Ask(3, 80, 3);
  Ask(4, 40, 4);
  free_bytes_ = 40;
  Offer();
  EXPECT_THAT(tried_, ElementsAre(1, 4));
}

TEST_F(MemoryQueueTest, Malicious_ManyRequestsOfOneAllocationCostOneTry) {
  uint64_t size = 1000;
  for (uint64_t id = 0; id < MemoryQueue::kMaxWaitingOfAllocation; ++id) {
    EXPECT_TRUE(queue_.HasRoomFor(&allocations_[1]));
    Ask(id, size--, 1);
  }
  EXPECT_FALSE(queue_.HasRoomFor(&allocations_[1]));
  EXPECT_TRUE(queue_.HasRoomFor(&allocations_[2])) << "others have theirs";
  Ask(1000, 10, 2);
  free_bytes_ = 10;
  Offer();
  EXPECT_THAT(tried_, ElementsAre(0, 1000));
  EXPECT_THAT(granted_, ElementsAre(1000));
}

TEST_F(MemoryQueueTest, HoldsSoManyAndNoMore) {
  for (size_t i = 0; i < MemoryQueue::kMaxWaitingRequests; ++i) {
    ASSERT_TRUE(queue_.HasRoomFor(&allocations_[i]));
    Ask(i, 10, static_cast<int>(i));
  }
  EXPECT_FALSE(queue_.HasRoomFor(&allocations_[1999]));
}

// A tenth of the device comes back every 100 ms, and a small request takes it at once wherever it may.
TEST_F(MemoryQueueTest, ALargeOneIsServedBesideASteadyFlowOfSmallOnes) {
  Ask(1, 100, 1);
  uint64_t id = 100, small_ones = 0;
  const auto begin = now_;
  while (granted_.empty() || granted_.back() != 1) {
    ASSERT_LT(now_ - begin, seconds(30));
    free_bytes_ = std::min<uint64_t>(free_bytes_ + 5, 100);
    Ask(++id, 5, 2);
    Offer();
    small_ones += granted_.size() != 0 && granted_.back() != 1;
    now_ += milliseconds(100);
  }
  EXPECT_GT(small_ones, 20u) << "the small ones had their turns, too";
}

// The same where the device can never give what it asks for: others have half of the time and all they want in it.
TEST_F(MemoryQueueTest, Malicious_OneThatIsNeverServedTakesHalfOfTheTurnsAtMost) {
  Ask(1, UINT64_MAX, 1);
  free_bytes_ = 1000;
  milliseconds alone{0};
  for (int i = 0; i < 6000; ++i, now_ += milliseconds(10)) {
    if (!queue_.MayOvertake(now_)) alone += milliseconds(10);
  }
  EXPECT_GE(alone, seconds(15));
  EXPECT_LE(alone, seconds(30));
}

TEST_F(MemoryQueueTest, TheTurnsOfTheOldestBeginWithEverybodysAndGrow) {
  Ask(1, 100, 1);
  std::vector<int> alone;
  for (int second = 0; second < 16; ++second, now_ += seconds(1)) {
    if (!queue_.MayOvertake(now_)) alone.push_back(second);
  }
  EXPECT_THAT(alone, ElementsAre(1, 4, 5, 10, 11, 12, 13));
}

TEST_F(MemoryQueueTest, TheNextOneHasNoTurnToItselfAtOnce) {
  Ask(1, 100, 1);
  Ask(2, 50, 2);
  Ask(3, 10, 3);
  now_ += milliseconds(1500);
  EXPECT_FALSE(queue_.MayOvertake(now_));
  free_bytes_ = 10;
  Offer();
  EXPECT_THAT(tried_, ElementsAre(1));
  free_bytes_ = 110;
  Offer();
  EXPECT_THAT(granted_, ElementsAre(1, 3));
  EXPECT_TRUE(queue_.MayOvertake(now_));
}

TEST_F(MemoryQueueTest, WhoseTimeIsOverIsTakenEvenInAnothersTurn) {
  Ask(1, 100, 1);
  Ask(2, 10, 2, milliseconds(1500));
  EXPECT_THAT(Expired(), IsEmpty());
  now_ += milliseconds(1500);
  EXPECT_FALSE(queue_.MayOvertake(now_));
  EXPECT_THAT(Expired(), ElementsAre(2));
  EXPECT_EQ(queue_.CountOf(&allocations_[2]), 0u);
}

TEST_F(MemoryQueueTest, TheNextMomentIsADeadlineOrAChangeOfTurns) {
  EXPECT_EQ(queue_.NextMoment(now_), std::nullopt);
  Ask(1, 100, 1, milliseconds(2500));
  EXPECT_EQ(queue_.NextMoment(now_), now_ + seconds(1));
  now_ += seconds(2);
  EXPECT_EQ(queue_.NextMoment(now_), now_ + milliseconds(500));
}

TEST_F(MemoryQueueTest, AChangedWaitCountsFromTheBeginning) {
  Ask(1, 100, 1);
  Ask(2, 100, 2);
  now_ += seconds(10);
  queue_.SetWait(&allocations_[1], seconds(5));
  EXPECT_THAT(Expired(), ElementsAre(1));
}

TEST_F(MemoryQueueTest, WhatASessionWaitsForGoesWithIt) {
  Ask(1, 100, 1);
  Ask(2, 10, 1);
  Ask(1, 10, 1);
  EXPECT_EQ(queue_.TakeOf(1, now_).size(), 2u);
  EXPECT_EQ(queue_.CountOf(&allocations_[1]), 1u);
  free_bytes_ = 10;
  Offer();
  EXPECT_THAT(granted_, ElementsAre(2));
}

}  // namespace
}  // namespace gpuloom::scheduler
