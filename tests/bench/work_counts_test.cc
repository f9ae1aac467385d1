// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/work_counts.h"

#include <gtest/gtest.h>

namespace gpuloom::bench {
namespace {

TEST(WindowCounts, WorkBelongsToTheWindowInWhichItWasSeen) {
  WindowCounts counts(1000, 100, 3);
  counts.Add(1000, 1);
  counts.Add(1099, 20);
  counts.Add(1100, 5);
  counts.Add(1299, 7);
  EXPECT_EQ(counts.Text(), "[21,5,7]");
}

TEST(WindowCounts, NothingBeforeOrBehind) {
  WindowCounts counts(1000, 100, 3);
  counts.Add(999, 1);
  counts.Add(1300, 1);
  counts.Add(5000, 1);
  EXPECT_EQ(counts.Text(), "[0,0,0]");
  EXPECT_EQ(counts.end_ns(), 1300u);
}

TEST(RandomPauses, TheSameFromTheSameSeed) {
  RandomPauses one(1e6, 7), same(1e6, 7), other(1e6, 8);
  bool differ = false;
  for (int i = 0; i < 100; ++i) {
    const uint64_t pause_ns = one.NextNs();
    EXPECT_EQ(pause_ns, same.NextNs());
    differ |= pause_ns != other.NextNs();
  }
  EXPECT_TRUE(differ);
}

TEST(RandomPauses, AreDistributedExponentially) {
  constexpr int kDrawn = 100'000;
  RandomPauses pauses(1e6, 1);
  double sum_ns = 0;
  int longer = 0;
  for (int i = 0; i < kDrawn; ++i) {
    const auto pause_ns = static_cast<double>(pauses.NextNs());
    sum_ns += pause_ns;
    if (pause_ns > 2e6) ++longer;
  }
  EXPECT_NEAR(sum_ns / kDrawn, 1e6, 2e4);
  EXPECT_NEAR(static_cast<double>(longer) / kDrawn, 0.1353, 0.01);  // e^-2
}

}  // namespace
}  // namespace gpuloom::bench
