// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/capacity.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gpuloom {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(MakeCapacity, TheReserveIsAutoOrAsTheOperatorSays) {
  const auto automatic = MakeCapacity("GPU-1", 140 * kGiB, 10, "auto");
  ASSERT_TRUE(automatic.ok()) << automatic.status();
  EXPECT_EQ(automatic->gpu, "GPU-1");
  EXPECT_EQ(automatic->total_bytes, 140 * kGiB);
  EXPECT_EQ(automatic->slots, 10);
  EXPECT_EQ(automatic->reserve_bytes, AutoReserveBytes(140 * kGiB, 10));
  const auto told = MakeCapacity("GPU-1", 140 * kGiB, 10, "20GiB");
  ASSERT_TRUE(told.ok()) << told.status();
  EXPECT_EQ(told->reserve_bytes, 20 * kGiB);
}

TEST(MakeCapacity, WhatIsNoSizeOrLeavesNothingIsRefusedByName) {
  const auto no_size = MakeCapacity("GPU-1", 8 * kGiB, 10, "much");
  EXPECT_TRUE(absl::IsInvalidArgument(no_size.status()));
  EXPECT_THAT(std::string(no_size.status().message()), HasSubstr("--reserve: "));
  const auto all = MakeCapacity("GPU-1", 8 * kGiB, 10, "8GiB");
  EXPECT_TRUE(absl::IsInvalidArgument(all.status()));
  EXPECT_EQ(all.status().message(),
            "GPU GPU-1 has 8GiB, --reserve keeps 8GiB: nothing is left for 10 slots");
  EXPECT_FALSE(MakeCapacity("GPU-1", 8 * kGiB, 10, "9GiB").ok());
}

}  // namespace
}  // namespace gpuloom
