// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/patience.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kLeast = 50'000;
constexpr uint64_t kMost = 250'000;

Patience After(int times, uint64_t pause_ns) {
  Patience patience(kLeast, kMost);
  for (int i = 0; i < times; ++i) patience.Paused(pause_ns);
  return patience;
}

TEST(Patience, BeginsWithAllOfIt) { EXPECT_EQ(After(0, 0).ns(), kMost); }

TEST(Patience, FollowsShortPauses) {
  EXPECT_EQ(After(1, 10'000).ns(), kMost) << "one pause says little";
  EXPECT_EQ(After(1000, 10'000).ns(), kLeast);
  EXPECT_EQ(After(1000, 60'000).ns(), 120'000u);
}

TEST(Patience, IsNotWastedOnPausesThatAreLongerAnyway) {
  EXPECT_EQ(After(1000, 2'000'000).ns(), kLeast);
}

// As a program that launches every 10 µs, and after each fifty launches does something else.
TEST(Patience, APauseThatComesNowAndThenIsWaitedFor) {
  Patience patience = After(1000, 10'000);
  patience.Paused(100'000);
  for (int i = 0; i < 20; ++i) {
    for (int launch = 0; launch < 50; ++launch) patience.Paused(10'000);
    EXPECT_GE(patience.ns(), 90'000u);
    patience.Paused(100'000);
    EXPECT_EQ(patience.ns(), 200'000u);
  }
}

}  // namespace
}  // namespace gpuloom::arbiter
