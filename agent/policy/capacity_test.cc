// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(MakeCapacity, TheReserveIsAutoOrAsTheOperatorSays) {
  std::string error;
  const auto automatic = MakeCapacity("GPU-1", 140 * kGiB, 10, "auto", &error);
  ASSERT_TRUE(automatic) << error;
  EXPECT_EQ(automatic->gpu, "GPU-1");
  EXPECT_EQ(automatic->total_bytes, 140 * kGiB);
  EXPECT_EQ(automatic->slots, 10);
  EXPECT_EQ(automatic->reserve_bytes, AutoReserveBytes(140 * kGiB, 10));
  const auto told = MakeCapacity("GPU-1", 140 * kGiB, 10, "20GiB", &error);
  ASSERT_TRUE(told) << error;
  EXPECT_EQ(told->reserve_bytes, 20 * kGiB);
}

TEST(MakeCapacity, WhatIsNoSizeIsRefused) {
  std::string error;
  EXPECT_FALSE(MakeCapacity("GPU-1", 8 * kGiB, 10, "much", &error));
  EXPECT_THAT(error, HasSubstr("--reserve: "));
}

TEST(NothingLeft, SaysWhyAGpuThatIsTooSmallHasNoSlots) {
  std::string error;
  const auto small = MakeCapacity("GPU-1", 8 * kGiB, 10, "8GiB", &error);
  ASSERT_TRUE(small) << error;
  EXPECT_EQ(NothingLeft(*small),
            "GPU GPU-1 has 8GiB, --reserve keeps 8GiB: nothing is left for 10 slots");
  EXPECT_NE(NothingLeft(*MakeCapacity("GPU-1", 8 * kGiB, 10, "9GiB", &error)), "");
  EXPECT_EQ(NothingLeft(*MakeCapacity("GPU-1", 8 * kGiB, 10, "7GiB", &error)), "");
}

}  // namespace
}  // namespace gpuloom
