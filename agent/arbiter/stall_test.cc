// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/stall.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kStallLeast = 10'000'000;

// A session with one kernel that does not end, and pieces that go out of turn: how long until `count` of them, of this
// length each, have ended.
uint64_t TimeFor(int count, uint64_t piece_ns) {
  Stall stall;
  uint64_t now_ns = 0;
  for (int i = 0; i < count; ++i) {
    while (!stall.IsDue(kStallLeast, now_ns)) now_ns += 10'000;
    stall.Submitted(1, kStallLeast, now_ns);
    now_ns += piece_ns;
    stall.WentOn(now_ns);
    stall.Ended(1, now_ns);
  }
  return now_ns;
}

TEST(Stall, ShortPiecesGoOneAfterTheOther) {
  EXPECT_LE(TimeFor(1000, 20'000), 1000 * (kStallLeast + 40'000));
  EXPECT_LE(TimeFor(1000, 600'000), 1000 * (kStallLeast + 620'000));
}

TEST(Stall, Malicious_LongPiecesTakeASixteenthOfTheTime) {
  for (const uint64_t piece_ns : {1'000'000u, 10'000'000u, 100'000'000u}) {
    EXPECT_GE(TimeFor(20, piece_ns), 19 * 16 * piece_ns) << piece_ns;
  }
}

// One short piece with long ones beside it: only all of them count.
TEST(Stall, Malicious_AShortPieceDoesNotSpeakForLongOnes) {
  Stall stall;
  ASSERT_TRUE(stall.IsDue(kStallLeast, kStallLeast));
  stall.Submitted(1, kStallLeast, kStallLeast);
  stall.WentOn(kStallLeast + 1000);
  stall.Ended(2, kStallLeast + 1000);
  EXPECT_FALSE(stall.IsDue(kStallLeast, 2 * kStallLeast + 1000));
  EXPECT_TRUE(stall.IsDue(kStallLeast, 3 * kStallLeast + 1000));
}

TEST(Stall, WaitsTwiceAsLongWhileNothingEnds) {
  Stall stall;
  uint64_t now_ns = 0;
  uint64_t wait_ns = kStallLeast;
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(stall.IsDue(kStallLeast, now_ns + wait_ns - 1));
    now_ns += wait_ns;
    EXPECT_TRUE(stall.IsDue(kStallLeast, now_ns));
    stall.Submitted(1, kStallLeast, now_ns);
    wait_ns = std::min(2 * wait_ns, kStallLeast << Stall::kDoublings);
  }
  stall.HadATurn();
  EXPECT_TRUE(stall.IsDue(kStallLeast, now_ns + kStallLeast));
}

}  // namespace
}  // namespace gpuloom::arbiter
