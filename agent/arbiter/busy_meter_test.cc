// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/busy_meter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace gpuloom::arbiter {
namespace {

TEST(BusyMeter, AMomentIsDividedAmongThoseWhoseWorkRuns) {
  BusyMeter meter;
  meter.Begin(0, 100);
  meter.Begin(1, 200);
  meter.End(0, 400);
  meter.End(1, 1000);
  meter.SettleTo(1000);
  EXPECT_EQ(meter.charged_ns(0), 100u + 100u);
  EXPECT_EQ(meter.charged_ns(1), 100u + 600u);
  EXPECT_EQ(meter.busy_ns(), 900u);
}

TEST(BusyMeter, ManyKernelsOfOneOwnerCountOnce) {
  BusyMeter meter;
  for (int i = 0; i < 15; ++i) meter.Begin(0, 0);
  meter.Begin(1, 0);
  for (int i = 0; i < 15; ++i) meter.End(0, 1000);
  meter.End(1, 1000);
  meter.SettleTo(1000);
  EXPECT_EQ(meter.charged_ns(0), 500u);
  EXPECT_EQ(meter.charged_ns(1), 500u);
}

TEST(BusyMeter, WhatRunsIsChargedBeforeItsEndAndTakenOnce) {
  BusyMeter meter;
  meter.Begin(3, 0);
  meter.SettleTo(700);
  EXPECT_EQ(meter.Take(3), 700u);
  EXPECT_EQ(meter.Take(3), 0u);
  meter.End(3, 1000);
  meter.SettleTo(5000);
  EXPECT_EQ(meter.Take(3), 300u);
  EXPECT_EQ(meter.Take(77), 0u) << "never heard of";
}

TEST(BusyMeter, EdgesComeInAnyOrderUpToTheSettledMoment) {
  BusyMeter meter;
  meter.End(1, 900);
  meter.Begin(0, 300);
  meter.Begin(1, 100);
  meter.End(0, 500);
  meter.SettleTo(1000);
  EXPECT_EQ(meter.charged_ns(0), 100u);
  EXPECT_EQ(meter.charged_ns(1), 700u);
  EXPECT_EQ(meter.late_ns(), 0u);
  meter.Begin(2, 400);
  meter.End(2, 1100);
  meter.SettleTo(1100);
  EXPECT_EQ(meter.charged_ns(2), 100u) << "what is settled stays";
  EXPECT_EQ(meter.late_ns(), 600u);
}

TEST(BusyMeter, AnEndWithoutABeginIsCountedAndChangesNothing) {
  BusyMeter meter;
  meter.End(0, 10);
  meter.SettleTo(20);
  EXPECT_EQ(meter.unmatched(), 1u);
  EXPECT_EQ(meter.busy_ns(), 0u);
  EXPECT_EQ(meter.running(), 0u);
}

// Against a division moment by moment, with remainders kept as fractions.
TEST(BusyMeter, RandomPiecesAddUpExactly) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    constexpr uint32_t kOwners = 7;
    constexpr uint64_t kSpan = 3000;
    std::vector<std::vector<int>> runs(kOwners, std::vector<int>(kSpan + 1));
    BusyMeter meter;
    for (int i = 0; i < 40; ++i) {
      const uint32_t owner = random() % kOwners;
      const uint64_t begin = random() % kSpan;
      const uint64_t end = begin + random() % (kSpan - begin);
      meter.Begin(owner, begin);
      meter.End(owner, end);
      for (uint64_t t = begin; t < end; ++t) ++runs[owner][t];
    }
    std::vector<double> expected(kOwners);
    uint64_t busy = 0;
    for (uint64_t t = 0; t < kSpan; ++t) {
      uint32_t running = 0;
      for (const auto& of_owner : runs) running += of_owner[t] != 0 ? 1 : 0;
      busy += running != 0 ? 1 : 0;
      for (uint32_t owner = 0; owner < kOwners; ++owner) {
        if (runs[owner][t] != 0) expected[owner] += 1.0 / running;
      }
    }
    uint64_t settled = 0;
    while (settled < kSpan) {
      settled += 1 + random() % 100;
      meter.SettleTo(settled);
      uint64_t sum = meter.remainder_ns();
      for (uint32_t owner = 0; owner < kOwners; ++owner) sum += meter.charged_ns(owner);
      ASSERT_EQ(sum, meter.busy_ns());
      ASSERT_LT(meter.remainder_ns(), std::max(meter.running(), 1u));
    }
    EXPECT_EQ(meter.busy_ns(), busy);
    EXPECT_EQ(meter.remainder_ns(), 0u);
    for (uint32_t owner = 0; owner < kOwners; ++owner) {
      // A remainder of less than one for each of them that ran is handed on at each edge.
      EXPECT_NEAR(double(meter.charged_ns(owner)), expected[owner], 80);
    }
  }
}

}  // namespace
}  // namespace gpuloom::arbiter
