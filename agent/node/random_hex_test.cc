// SPDX-License-Identifier: Apache-2.0
#include "agent/node/random_hex.h"

#include <gtest/gtest.h>

#include <set>

namespace gpuloom {
namespace {

TEST(RandomHex, HasTwoDigitsForEachByte) {
  EXPECT_EQ(RandomHex(0), "");
  EXPECT_EQ(RandomHex(4).size(), 8u);
  const std::string longest = RandomHex(256);
  EXPECT_EQ(longest.size(), 512u);
  EXPECT_EQ(longest.find_first_not_of("0123456789abcdef"), std::string::npos);
  for (const char digit : std::string("0123456789abcdef")) {
    EXPECT_NE(longest.find(digit), std::string::npos) << digit;  // missing once in 10^13 runs
  }
}

TEST(RandomHex, IsAnotherEachTime) {
  std::set<std::string> names;
  for (int i = 0; i < 1000; ++i) names.insert(RandomHex(16));
  EXPECT_EQ(names.size(), 1000u);
}

}  // namespace
}  // namespace gpuloom
