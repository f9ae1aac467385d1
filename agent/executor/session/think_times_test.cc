// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/think_times.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace gpuloom::executor {
namespace {

constexpr int64_t kUs = 1'000;

class ThinkTimesTest : public ::testing::Test {
 protected:
  void NoteUs(std::initializer_list<int64_t> times_us) {
    for (const int64_t us : times_us) times_.Note(us * kUs);
  }
  // Awake when a command comes after that long.
  bool IsAwakeUs(int64_t us) const { return times_.UntilExpectedNs(us * kUs) == 0; }
  bool ExpectsNothing() const {
    for (int64_t us = 0; us <= 12'000; us += 10) {
      if (times_.UntilExpectedNs(us * kUs) >= 0) return false;
    }
    return true;
  }

  ThinkTimes times_;
};

TEST_F(ThinkTimesTest, NothingIsExpectedBeforeEnoughIsKnown) {
  EXPECT_TRUE(ExpectsNothing());
  NoteUs({1500, 1500, 1500, 1500});
  EXPECT_TRUE(ExpectsNothing());
  NoteUs({1500});
  EXPECT_TRUE(IsAwakeUs(1500));
}

TEST_F(ThinkTimesTest, TheNextCommandIsExpectedWhenItCameTheLastTimes) {
  NoteUs({1500, 1510, 1490, 1500, 1505, 1500, 1500, 1500});
  EXPECT_EQ(times_.UntilExpectedNs(0), 1490 * kUs - ThinkTimes::kEarlyNs);
  EXPECT_EQ(times_.UntilExpectedNs(1000 * kUs), 490 * kUs - ThinkTimes::kEarlyNs);
  EXPECT_TRUE(IsAwakeUs(1490));
  EXPECT_TRUE(IsAwakeUs(1510));
  EXPECT_LT(times_.UntilExpectedNs(1600 * kUs), 0) << "it is overdue";
}

// To be woken takes 30 to 60 µs, and so much too long is what was noted then.
TEST_F(ThinkTimesTest, WhoHadToBeWokenIsAwakeTheNextTime) {
  NoteUs({1560, 1545, 1550, 1540, 1530, 1555, 1550, 1560});
  EXPECT_TRUE(IsAwakeUs(1500));
}

TEST_F(ThinkTimesTest, SomeThatAreUnlikeDoNotMatter) {
  NoteUs({1500, 400, 1500, 9000, 1500, 1520, 3000, 1510});
  EXPECT_TRUE(IsAwakeUs(1500));
  EXPECT_FALSE(IsAwakeUs(400));
  EXPECT_FALSE(IsAwakeUs(3000));
}

TEST_F(ThinkTimesTest, WhatIsNeverAlikeIsNotAwaited) {
  NoteUs({500, 900, 1300, 1700, 2100, 2500, 2900, 3300});
  EXPECT_TRUE(ExpectsNothing());
}

// So a program does not keep the thread awake for much of the time.
TEST_F(ThinkTimesTest, OfAShortTimeLittleIsSpentAwake) {
  NoteUs({240, 330, 240, 330, 240, 330, 240, 330});
  EXPECT_TRUE(ExpectsNothing()) << "they are further apart than a quarter";
  NoteUs({240, 250, 260, 250, 240});
  EXPECT_TRUE(IsAwakeUs(250));
  EXPECT_FALSE(IsAwakeUs(330));
}

TEST_F(ThinkTimesTest, TheyFollowAProgramThatChanges) {
  NoteUs({1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500});
  NoteUs({3000, 3000, 3000, 3000, 3000});
  EXPECT_TRUE(IsAwakeUs(3000));
  EXPECT_FALSE(IsAwakeUs(1500));
}

TEST_F(ThinkTimesTest, WhatIsSpunThroughAnywayAndLongOnesAreNotNoted) {
  NoteUs({1500, 1500, 1500, 1500, 1500});
  for (int i = 0; i < 100; ++i) NoteUs({30, 20'000});
  EXPECT_TRUE(IsAwakeUs(1500));
}

}  // namespace
}  // namespace gpuloom::executor
