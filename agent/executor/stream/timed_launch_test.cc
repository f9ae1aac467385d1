// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/timed_launch.h"

#include <gtest/gtest.h>

#include "agent/executor/testing/driver.h"

namespace gpuloom::executor {
namespace {

// The testing driver answers 1.5 ms for any two events.
constexpr uint64_t kElapsedNs = 1'500'000;

uint64_t AtRecorded() { return 12'000; }

class TimedLaunchTest : public ::testing::Test {
 protected:
  PointRef MakePoint() {
    auto point = std::make_shared<Point>(&device_, wire::StreamId{0}, wire::Ticket{1}, true);
    EXPECT_EQ(device_.TakeEvent(true, &point->event), CUDA_SUCCESS);
    return point;
  }

  Device device_{TestingDriver::Reset()};
  TimedLaunch timed_;
  uint64_t seen_ns_ = 0;
  uint64_t worked_ns_ = 0;
};

TEST_F(TimedLaunchTest, LeavesOutWhatTimingItCosts) {
  ASSERT_TRUE(timed_.Begin(&device_, nullptr, 10'000, AtRecorded));  // recording took 2 µs
  EXPECT_TRUE(timed_.any());
  const PointRef point = MakePoint();
  timed_.Launched(point, 9'000, 15'000);  // and launching 3
  const PointRef other = MakePoint();
  EXPECT_FALSE(timed_.Take(other, 2'000'000, &seen_ns_, &worked_ns_));
  ASSERT_TRUE(timed_.Take(point, 2'000'000, &seen_ns_, &worked_ns_));
  EXPECT_EQ(worked_ns_, kElapsedNs - 3'000);
  EXPECT_EQ(seen_ns_, 2'000'000u - 9'000 - 2'000);
  EXPECT_FALSE(timed_.any());
  EXPECT_FALSE(timed_.Take(point, 2'000'000, &seen_ns_, &worked_ns_)) << "once";
}

TEST_F(TimedLaunchTest, WhatTheDriverRefusesIsNotTimed) {
  TestingDriver::Fail(CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_FALSE(timed_.Begin(&device_, nullptr, 10'000, AtRecorded));
  EXPECT_FALSE(timed_.any());
}

}  // namespace
}  // namespace gpuloom::executor
