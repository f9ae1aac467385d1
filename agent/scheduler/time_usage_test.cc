// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/time_usage.h"

#include <gtest/gtest.h>

namespace gpuloom::scheduler {
namespace {

TEST(TimeUsage, SumsEveryFigure) {
  control::TimeUsage sum{1, 2, 3, 4, 5, 6};
  AddTo({10, 20, 30, 40, 50, 60}, &sum);
  EXPECT_EQ(sum.compute_ns, 11u);
  EXPECT_EQ(sum.copy_to_device_ns, 22u);
  EXPECT_EQ(sum.copy_from_device_ns, 33u);
  EXPECT_EQ(sum.queue_ns, 44u);
  EXPECT_EQ(sum.throttled_ns, 55u);
  EXPECT_EQ(sum.held_ns, 66u);
}

TEST(TimeUsage, Malicious_AFigureNeverGoesBack) {
  control::TimeUsage known{};
  RaiseTo({9, 9, 9, 9, 9, 9}, &known);
  RaiseTo({3, 10, 0, 9, 12, 8}, &known);
  EXPECT_EQ(known.compute_ns, 9u);
  EXPECT_EQ(known.copy_to_device_ns, 10u);
  EXPECT_EQ(known.copy_from_device_ns, 9u);
  EXPECT_EQ(known.queue_ns, 9u);
  EXPECT_EQ(known.throttled_ns, 12u);
  EXPECT_EQ(known.held_ns, 9u);
}

TEST(TimeUsage, Malicious_ASumDoesNotOverflow) {
  control::TimeUsage sum{UINT64_MAX - 1, 0, 0, 0, 0, UINT64_MAX};
  AddTo({2, UINT64_MAX, 0, 0, 0, 1}, &sum);
  EXPECT_EQ(sum.compute_ns, UINT64_MAX);
  EXPECT_EQ(sum.copy_to_device_ns, UINT64_MAX);
  EXPECT_EQ(sum.held_ns, UINT64_MAX);
}

}  // namespace
}  // namespace gpuloom::scheduler
