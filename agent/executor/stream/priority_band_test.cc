// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/priority_band.h"

#include <gtest/gtest.h>

namespace gpuloom::executor {
namespace {

using arbiter::Priority;

TEST(PriorityBand, ClassesDivideTheDevicesPriorities) {
  for (const auto& [priority, least, greatest] : {std::tuple{Priority::kLow, 0, -1},
                                                  {Priority::kNormal, -2, -3},
                                                  {Priority::kHigh, -4, -5}}) {
    const PriorityBand band = PriorityBand::Of(priority, 0, -5);
    EXPECT_EQ(band.least, least);
    EXPECT_EQ(band.greatest, greatest);
    EXPECT_EQ(band.Map(0), least);
    EXPECT_EQ(band.Map(-5), greatest);
  }
}

TEST(PriorityBand, AProgramKeepsItsOrder) {
  const PriorityBand band = PriorityBand::Of(Priority::kNormal, 0, -5);
  for (int priority = 0; priority > -5; --priority) {
    EXPECT_GE(band.Map(priority), band.Map(priority - 1));
  }
}

TEST(PriorityBand, Malicious_NobodyLeavesHisBand) {
  for (const int greatest : {0, -1, -2, -3, -5, -7}) {
    for (const Priority priority : arbiter::kAllPriorities) {
      const PriorityBand band = PriorityBand::Of(priority, 0, greatest);
      for (const int asked : {INT32_MIN, -100, greatest - 1, greatest, -1, 0, 1, INT32_MAX}) {
        EXPECT_LE(band.Map(asked), band.least);
        EXPECT_GE(band.Map(asked), band.greatest);
        EXPECT_GE(band.Map(asked), greatest);
        EXPECT_LE(band.Map(asked), 0);
      }
    }
    // Where there are enough levels a lower class is below a higher one.
    if (greatest > -2) continue;
    EXPECT_GT(PriorityBand::Of(Priority::kLow, 0, greatest).greatest,
              PriorityBand::Of(Priority::kNormal, 0, greatest).least);
    EXPECT_GT(PriorityBand::Of(Priority::kNormal, 0, greatest).greatest,
              PriorityBand::Of(Priority::kHigh, 0, greatest).least);
  }
}

}  // namespace
}  // namespace gpuloom::executor
