// SPDX-License-Identifier: Apache-2.0
#include "agent/node/duration.h"

#include <gtest/gtest.h>

namespace gpuloom {
namespace {

TEST(Duration, NeedsAUnit) {
  EXPECT_EQ(ParseDuration("60s"), std::chrono::seconds(60));
  EXPECT_EQ(ParseDuration("250ms"), std::chrono::milliseconds(250));
  EXPECT_EQ(ParseDuration("0s"), std::chrono::seconds(0));
  for (const char* bad :
       {"", "s", "60", "-1s", "1.5s", "60 s", "2h", "99999999999999999999s", "100000s"}) {
    EXPECT_FALSE(ParseDuration(bad)) << bad;
  }
}

}  // namespace
}  // namespace gpuloom
