// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kMiB = uint64_t{1} << 20;

TEST(AutoReserve, TenContextsOrAnEighth) {
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 10), 6000 * kMiB);
  EXPECT_EQ(AutoReserveBytes(16 * kGiB, 10), 2 * kGiB);
  EXPECT_EQ(AutoReserveBytes(140 * kGiB, 1), 600 * kMiB);
}

}  // namespace
}  // namespace gpuloom
