// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/backoff.h"

#include <gtest/gtest.h>

#include "agent/testing/clock.h"

namespace gpuloom {
namespace {

TEST(Backoff, DoublesAndStartsAnewAfterALongRun) {
  TestingClock clock;
  Backoff backoff;
  EXPECT_TRUE(backoff.MayStart(clock.Now()));
  Clock::Duration last{};
  for (int i = 0; i < 10; ++i) {
    backoff.Started(clock.Now());
    backoff.Failed(clock.Now());
    EXPECT_FALSE(backoff.MayStart(clock.Now()));
    EXPECT_GE(backoff.pause(), last);
    last = backoff.pause();
    clock.Advance(last);
    EXPECT_TRUE(backoff.MayStart(clock.Now()));
  }
  EXPECT_EQ(last, Backoff::kLongest);
  backoff.Started(clock.Now());
  clock.Advance(Backoff::kStable);
  backoff.Failed(clock.Now());
  EXPECT_EQ(backoff.pause(), Backoff::kFirst);
}

}  // namespace
}  // namespace gpuloom
