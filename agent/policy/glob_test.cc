// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/glob.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(Glob, Table) {
  EXPECT_TRUE(GlobMatches("team-*", "team-a"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("*a*b*", "xxaxxbxx"));
  EXPECT_TRUE(GlobMatches("team-?", "team-a"));
  EXPECT_FALSE(GlobMatches("team-?", "team-"));
  EXPECT_FALSE(GlobMatches("team", "team-a"));
  EXPECT_FALSE(GlobMatches("*a", "ab"));
}

}  // namespace
}  // namespace gpuloom
