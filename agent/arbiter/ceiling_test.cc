// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/ceiling.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kMs = 1'000'000;

TEST(Ceiling, TakesNoMoreThanItsShareAndWhatItSaved) {
  Ceiling ceiling(250, 100 * kMs, 0);
  uint64_t used_ns = 0;
  for (uint64_t now_ns = 0; now_ns < 2000 * kMs; now_ns += kMs / 2) {
    ceiling.Refill(now_ns);
    if (ceiling.Empty(0)) continue;
    ceiling.Take(kMs);
    used_ns += kMs;
  }
  EXPECT_LE(used_ns, 2100 * kMs / 4 + kMs);
  EXPECT_GE(used_ns, 2100 * kMs / 4 - kMs);
}

TEST(Ceiling, OpensWhenItSaysAndNotBefore) {
  Ceiling ceiling(100, 100 * kMs, 0);
  ceiling.Take(17 * kMs);
  ASSERT_TRUE(ceiling.Empty(0));
  const uint64_t opens_ns = ceiling.OpensAtNs(0);
  EXPECT_NEAR(double(opens_ns), 70.0 * kMs, 2);
  ceiling.Refill(opens_ns - 2);
  EXPECT_TRUE(ceiling.Empty(0));
  ceiling.Refill(opens_ns);
  EXPECT_FALSE(ceiling.Empty(0));
}

TEST(Ceiling, IsFullWhenANewOneWouldBeNoBetter) {
  Ceiling ceiling(250, kCeilingWindowNs, 0);
  EXPECT_TRUE(ceiling.Full(0));
  ceiling.Take(1);
  EXPECT_FALSE(ceiling.Full(3));
  EXPECT_TRUE(ceiling.Full(4));
  ceiling.Take(1'000'000);
  EXPECT_FALSE(ceiling.Full(4'000'003));
  EXPECT_TRUE(ceiling.Full(4'000'004));
}

TEST(Ceiling, WhatIsInFlightCountsAsUsed) {
  Ceiling ceiling(100, 100 * kMs, 0);
  EXPECT_FALSE(ceiling.Empty(9 * kMs));
  EXPECT_TRUE(ceiling.Empty(10 * kMs));
}

TEST(Ceiling, NothingOverflows) {
  Ceiling ceiling(1, 100 * kMs, 0);
  for (int i = 0; i < 10; ++i) ceiling.Take(UINT64_MAX);
  EXPECT_TRUE(ceiling.Empty(UINT64_MAX));
  ceiling.Change(5000, UINT64_MAX / 2);
  EXPECT_EQ(ceiling.permille(), 1000u);
  ceiling.Refill(UINT64_MAX);
  EXPECT_GT(ceiling.OpensAtNs(0), 0u);
}

}  // namespace
}  // namespace gpuloom::arbiter
