// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/cut_point.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

TEST(CutPoint, ChainsAreAsLongAsTheBoundAllowsAndAPowerOfTwo) {
  for (uint64_t launch_ns = 1; launch_ns < 1'000'000; launch_ns = launch_ns * 3 / 2 + 1) {
    CutPoint cut;
    const uint32_t launches = cut.Update(launch_ns, 100'000);
    EXPECT_EQ(launches & (launches - 1), 0u);
    if (launches > 1) {
      EXPECT_LE(launches * launch_ns, 125'000u);
    }
    if (launches < CutPoint::kMostLaunches) {
      EXPECT_GE(2 * launches * launch_ns, 75'000u);
    }
  }
}

TEST(CutPoint, MeasurementsThatWobbleMoveNothing) {
  CutPoint cut;
  const uint32_t launches = cut.Update(10'000, 100'000);
  EXPECT_EQ(launches, 8u);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(cut.Update(i % 2 == 0 ? 8'000 : 14'000, 100'000), launches);
  }
}

TEST(CutPoint, ABoundThatComesAndGoesCutsWhereItDid) {
  CutPoint cut;
  const uint32_t launches = cut.Update(10'000, 100'000);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(cut.Update(10'000, kUnbounded), CutPoint::kMostLaunches);
    EXPECT_EQ(cut.Update(10'000, 100'000), launches);
  }
}

TEST(CutPoint, NoLengthOverflows) {
  CutPoint cut;
  EXPECT_EQ(cut.Update(UINT64_MAX, 100'000), 1u);
  EXPECT_EQ(cut.Update(0, UINT64_MAX - 1), CutPoint::kMostLaunches);
}

}  // namespace
}  // namespace gpuloom::arbiter
