// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/launch_sequence.h"

#include <gtest/gtest.h>

#include <set>
#include <unordered_set>

namespace gpuloom::bench {
namespace {

constexpr int kDrawn = 50'000;

TEST(LaunchSequence, TheSameFromTheSameSeed) {
  LaunchSequence one(7), same(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(one.Next().argument, same.Next().argument);
}

TEST(LaunchSequence, NoLaunchOfAnySeedComesTwice) {
  std::unordered_set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    LaunchSequence sequence(seed);
    for (int i = 0; i < kDrawn; ++i) seen.insert(sequence.Next().argument);
  }
  EXPECT_EQ(seen.size(), 16u * kDrawn);
}

TEST(LaunchSequence, DrawsEveryFunctionWithEverySize) {
  LaunchSequence sequence(1);
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (int i = 0; i < kDrawn; ++i) {
    const LaunchSequence::Step step = sequence.Next();
    EXPECT_LT(step.function, 8u);
    EXPECT_GE(step.blocks, 1u);
    EXPECT_LE(step.blocks, 4u);
    seen.insert({step.function, step.blocks});
  }
  EXPECT_EQ(seen.size(), 32u);
}

}  // namespace
}  // namespace gpuloom::bench
