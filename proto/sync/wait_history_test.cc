// SPDX-License-Identifier: Apache-2.0
#include "proto/sync/wait_history.h"

#include <gtest/gtest.h>

#include <initializer_list>

namespace gpuloom {
namespace {

constexpr int64_t kShortestNs = 100'000;
constexpr int64_t kWakeNs = 20'000;

class WaitHistoryTest : public testing::Test {
 protected:
  void NoteAll(std::initializer_list<int64_t> waits_us) {
    for (const int64_t us : waits_us) history_.Note(us * 1000, us * 1000);
  }

  // How long one waits that looks again after each sleep, and is awake from when it may not sleep
  // on, where what it waits for comes after `wait_ns`. Notes it, and counts the sleeps.
  int64_t FoundAfter(int64_t wait_ns, int* sleeps, int64_t* asleep_ns) {
    int64_t now_ns = kShortestNs;
    int64_t looked_ns = now_ns;
    *sleeps = 0;
    *asleep_ns = 0;
    while (now_ns < wait_ns) {
      looked_ns = now_ns;
      const int64_t sleep_ns = history_.SleepNs(now_ns);
      if (sleep_ns == 0) {
        now_ns += 1'000;
        continue;
      }
      ++*sleeps;
      *asleep_ns += sleep_ns;
      now_ns += sleep_ns;
    }
    history_.Note(looked_ns, now_ns);
    return now_ns;
  }

  WaitHistory history_{kShortestNs, kWakeNs};
};

TEST_F(WaitHistoryTest, StaysAwakeUntilItKnowsEnough) {
  NoteAll({2000, 2000, 2000, 2000, 2000, 2000, 2000});
  EXPECT_EQ(history_.SleepNs(200'000), 0);
  NoteAll({2000});
  EXPECT_GT(history_.SleepNs(200'000), 0);
}

TEST_F(WaitHistoryTest, IsAwakeWhenAWaitAsLongAsTheLastOnesEnds) {
  NoteAll({2200, 2190, 2210, 2200, 2230, 2195, 2200, 2205});
  int sleeps;
  int64_t asleep_ns;
  EXPECT_LE(FoundAfter(2'200'000, &sleeps, &asleep_ns), 2'201'000);
  EXPECT_GT(asleep_ns, 1'600'000);
  EXPECT_LE(sleeps, 6);
}

TEST_F(WaitHistoryTest, WhoSleepsInTheLastEighthIsAwakeAtItsEnd) {
  NoteAll({5000, 5020, 5010, 5000, 5030, 5005, 5000, 5005});
  constexpr int64_t kEachNs = 78'000;
  for (const int64_t over_ns : {5'000'000, 5'001'000, 5'030'000, 5'070'000}) {
    int sleeps = 0;
    int64_t now_ns = 4'400'000;
    EXPECT_EQ(history_.SleepNs(now_ns), 0);
    while (now_ns < over_ns) {
      const int64_t sleep_ns = history_.ShortenNs(now_ns, kEachNs);
      sleeps += sleep_ns != 0;
      now_ns += sleep_ns == 0 ? 1'000 : sleep_ns;
    }
    EXPECT_LE(now_ns, over_ns + 1'000) << over_ns;
    EXPECT_GT(sleeps, 4) << over_ns;
  }
  // Of one that is longer than that, and of one like none, nothing is known.
  EXPECT_EQ(history_.ShortenNs(5'079'000, kEachNs), kEachNs);
  EXPECT_EQ(history_.ShortenNs(50'000'000, kEachNs), kEachNs);
}

// A kernel that takes three per cent more or less each time. It is awaited awake from the shortest of the last ones to the longest.
TEST_F(WaitHistoryTest, WhatVariesALittleIsAwaitedAwake) {
  constexpr int64_t kEachNs = 78'000;
  NoteAll({5000, 5140, 5020, 5090, 5060, 5130, 5010, 5110});
  for (int64_t waited_ns = 5'000'000; waited_ns < 5'140'000; waited_ns += 1'000) {
    EXPECT_EQ(history_.ShortenNs(waited_ns, kEachNs), 0) << waited_ns;
  }
  EXPECT_EQ(history_.ShortenNs(5'141'000, kEachNs), kEachNs);
  // One of them that was far longer keeps nobody awake.
  history_.Note(5'999'000, 6'000'000);
  EXPECT_EQ(history_.ShortenNs(5'141'000, kEachNs), kEachNs);
}

TEST_F(WaitHistoryTest, ShortWaitsAreNotNoted) {
  NoteAll({2000, 2000, 2000, 2000, 2000, 2000, 2000, 2000});
  for (int i = 0; i < 100; ++i) history_.Note(kShortestNs - 2, kShortestNs - 1);
  EXPECT_GT(history_.SleepNs(200'000), 0);
  EXPECT_EQ(history_.SleepNs(kShortestNs - 1), 0);
}

// One that is over early is found when it has lasted twice as long at the latest, or a millisecond
// longer; and the next like it is awaited awake.
TEST_F(WaitHistoryTest, AnEarlyEndIsFoundSoonAndLearnt) {
  NoteAll({50'000, 50'000, 50'000, 50'000, 50'000, 50'000, 50'000, 50'000});
  int sleeps;
  int64_t asleep_ns;
  for (const int64_t wait_ns : {30'000'000, 5'000'000, 700'000, 150'000}) {
    const int64_t found_ns = FoundAfter(wait_ns, &sleeps, &asleep_ns);
    EXPECT_GT(sleeps, 0);
    EXPECT_LE(found_ns, std::min(2 * wait_ns, wait_ns + WaitHistory::kLongestSleepNs));
    EXPECT_LE(FoundAfter(wait_ns, &sleeps, &asleep_ns), wait_ns + 1'000);
  }
}

// Two kinds of waits in turn: the short one is awaited awake, and the rest of the long one is slept
// through when the short one would be over.
TEST_F(WaitHistoryTest, WhatAWaitHasOutlastedNoLongerCounts) {
  NoteAll({300, 5000, 300, 5000, 300, 5000, 300, 5000});
  int sleeps;
  int64_t asleep_ns;
  EXPECT_LE(FoundAfter(300'000, &sleeps, &asleep_ns), 301'000);
  EXPECT_LE(FoundAfter(5'000'000, &sleeps, &asleep_ns), 5'001'000);
  EXPECT_GT(asleep_ns, 3'500'000);
}

}  // namespace
}  // namespace gpuloom
