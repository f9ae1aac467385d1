// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/round_trip.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

TEST(RoundTrip, IsTheMedianOfWhatWasSeenBeyondTheWork) {
  RoundTrip trip;
  for (uint64_t i = 0; i < 4; ++i) {
    trip.Learn(50'000 + 1'000 * i, 40'000 + RoundTrip::kEventsNs);
    EXPECT_EQ(trip.ns(), 0u) << "too little is known";
  }
  trip.Learn(54'000, 40'000 + RoundTrip::kEventsNs);
  EXPECT_EQ(trip.ns(), 12'000u);
  // Single ones that were held up change nothing.
  trip.Learn(9'000'000, 40'000 + RoundTrip::kEventsNs);
  EXPECT_LE(trip.ns(), 13'000u);
}

TEST(RoundTrip, FollowsWhatChanges) {
  RoundTrip trip;
  for (int i = 0; i < 15; ++i) trip.Learn(20'000, 10'000);
  EXPECT_EQ(trip.ns(), 10'000 + RoundTrip::kEventsNs);
  for (int i = 0; i < 15; ++i) trip.Learn(16'000, 10'000);
  EXPECT_EQ(trip.ns(), 6'000 + RoundTrip::kEventsNs);
}

TEST(RoundTrip, Malicious_WorkWhoseEndIsSeenLateMakesNobodysWorkFree) {
  RoundTrip trip;
  for (int i = 0; i < 100; ++i) trip.Learn(1'000'000, 100'000);
  EXPECT_EQ(trip.ns(), RoundTrip::kMostNs);
  RoundTrip other;
  for (int i = 0; i < 100; ++i) other.Learn(100'000'000, 90'000'000);
  EXPECT_EQ(other.ns(), 0u) << "long work says nothing";
}

TEST(RoundTrip, WhatCannotBeIsNotLearned) {
  RoundTrip trip;
  for (int i = 0; i < 15; ++i) trip.Learn(10'000, 10'001);
  EXPECT_EQ(trip.ns(), 0u);
}

TEST(RoundTrip, IsTimedOftenAtFirstAndSeldomThen) {
  RoundTrip trip;
  uint64_t now_ns = 1'000;
  EXPECT_TRUE(trip.Take(now_ns));
  EXPECT_FALSE(trip.Take(now_ns + 1'000'000));
  EXPECT_TRUE(trip.Take(now_ns += 2'000'000));
  for (int i = 0; i < 15; ++i) trip.Learn(20'000, 10'000);
  EXPECT_TRUE(trip.Take(now_ns += 2'000'000));
  EXPECT_FALSE(trip.Take(now_ns + 99'000'000));
  EXPECT_TRUE(trip.Take(now_ns + 100'000'000));
}

}  // namespace
}  // namespace gpuloom::arbiter
