// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/sm_division.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace gpuloom::arbiter {
namespace {

using ::testing::ElementsAre;

std::vector<SmGroups> GroupsOf(const std::vector<SmShare>& shares) {
  std::vector<SmGroups> groups;
  for (const SmShare& share : shares) groups.push_back(share.groups);
  return groups;
}

// H100: 132 multiprocessors in groups of 8, of which 15 are co-scheduled, and 12 more.
const SmLayout kH100 = SmLayout::Of(132, 8, 15);

uint32_t Count(SmGroups groups) { return static_cast<uint32_t>(std::popcount(groups)); }

TEST(SmLayout, RoundsDownToWholeGroupsButToOneAtLeast) {
  EXPECT_EQ(kH100.GroupsOf(25), 4u);  // 33 of 132
  EXPECT_EQ(kH100.GroupsOf(50), 8u);
  EXPECT_EQ(kH100.GroupsOf(1), 1u);
  EXPECT_EQ(kH100.GroupsOf(99), 15u);
  EXPECT_EQ(kH100.Multiprocessors(0b1111), 32u);
  EXPECT_EQ(kH100.Multiprocessors(kH100.whole()), 132u);
  EXPECT_EQ(kH100.Multiprocessors(kH100.regular()), 120u);
}

TEST(SmLayout, AnyDeviceFits) {
  // The software GPU: four in twos. One group. Nothing. More groups than bits.
  EXPECT_EQ(SmLayout::Of(4, 2, 2).whole(), 0b11u);
  EXPECT_EQ(SmLayout::Of(8, 8, 1).GroupsOf(50), 1u);
  EXPECT_EQ(SmLayout::Of(0, 0, 0).whole(), 0u);
  const SmLayout large = SmLayout::Of(512, 2, 256);
  EXPECT_LE(large.groups, kMaxSmGroups);
  EXPECT_EQ(large.Multiprocessors(large.whole()), 512u);
}

TEST(DivideSms, WhoeverIsNotLimitedHasAll) {
  const SmClaim claims[] = {{{}, {}}, {{100, 0}, {}}};
  EXPECT_THAT(GroupsOf(DivideSms(kH100, kH100.whole(), claims)),
              ElementsAre(kH100.whole(), kH100.whole()));
}

TEST(DivideSms, LimitedOnesKeepOutOfEachOthersWay) {
  const SmClaim claims[] = {
      {{25, 0}, {}}, {{25, 0}, {}}, {{25, 0}, {}}, {{25, 0}, {}}, {{50, 0}, {}}};
  const auto divided = GroupsOf(DivideSms(kH100, kH100.whole(), claims));
  EXPECT_EQ(divided[0] & divided[1], 0u);
  EXPECT_EQ((divided[0] | divided[1]) & divided[2], 0u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Count(divided[i]), 4u);
  EXPECT_EQ(Count(divided[4]), 8u);
}

TEST(DivideSms, ALargeOneKeepsToTheOtherEnd) {
  const SmClaim claims[] = {{{25, 0}, {}}, {{70, 0}, {}}};
  const auto divided = GroupsOf(DivideSms(kH100, kH100.whole(), claims));
  EXPECT_EQ(Count(divided[1]), 11u);
  EXPECT_EQ(divided[0] & divided[1], 0u);
}

TEST(DivideSms, WhatOneHasItKeeps) {
  const SmGroups third = 0b1111'0000'0000;
  const SmClaim claims[] = {{{25, 0}, {}}, {{25, 0}, {third, 0}}};
  const auto divided = GroupsOf(DivideSms(kH100, kH100.whole(), claims));
  EXPECT_EQ(divided[1], third);
  EXPECT_EQ(divided[0] & third, 0u);
}

TEST(DivideSms, ALimitThatChangesMovesIt) {
  const SmClaim claims[] = {{{50, 0}, {0b1111, 0}}};
  EXPECT_EQ(Count(DivideSms(kH100, kH100.whole(), claims)[0].groups), 8u);
}

TEST(DivideSms, ReservedIsNobodyElses) {
  const SmClaim claims[] = {{{}, {}}, {{0, 25}, {}}, {{25, 25}, {}}, {{50, 0}, {}}};
  const auto divided = GroupsOf(DivideSms(kH100, kH100.whole(), claims));
  const SmGroups own = divided[2];
  EXPECT_EQ(Count(own), 4u) << "limited to what it has reserved";
  EXPECT_EQ(divided[0] & own, 0u);
  EXPECT_EQ(divided[1] & own, 0u);
  EXPECT_EQ(divided[3] & own, 0u);
  EXPECT_EQ(kH100.Multiprocessors(divided[0]), 132u - 64u);
  EXPECT_EQ(kH100.Multiprocessors(divided[1]), 132u - 32u) << "its own and what all may use";
  EXPECT_EQ(divided[3] & divided[0], divided[3]);
}

TEST(DivideSms, AReservationThatDoesNotFitIsRefusedAndHurtsNobody) {
  const SmClaim claims[] = {{{0, 60}, {}}, {{0, 60}, {}}, {{}, {}}};
  const auto divided = GroupsOf(DivideSms(kH100, kH100.whole(), claims));
  EXPECT_NE(divided[0], 0u);
  EXPECT_EQ(divided[1], 0u);
  EXPECT_EQ(Count(divided[2] & divided[0] & kH100.regular()), 6u) << "what nobody has reserved";
  const SmClaim all[] = {{{0, 100}, {}}};
  EXPECT_EQ(DivideSms(kH100, kH100.whole(), all)[0].groups, 0u)
      << "nothing would be left to others";
}

TEST(DivideSms, APodStaysWithinItsNamespace) {
  const SmGroups of = 0b1111'0000;
  const SmClaim claims[] = {{{}, {}}, {{6, 0}, {}}, {{90, 0}, {}}};
  for (const SmGroups groups : GroupsOf(DivideSms(kH100, of, claims))) {
    EXPECT_NE(groups, 0u);
    EXPECT_EQ(groups & ~of, 0u);
  }
}

// Whatever comes: limits hold, reservations are exclusive, all stay inside, and a second look changes nothing.
TEST(DivideSms, HoldsForRandomClaims) {
  std::mt19937 random(7);
  const auto pick = [&](uint32_t most) {
    return static_cast<uint32_t>(std::uniform_int_distribution<uint32_t>(0, most)(random));
  };
  for (int round = 0; round < 20'000; ++round) {
    const uint32_t size = 1u << pick(3);
    const SmLayout layout = SmLayout::Of(pick(160) + size, size, (pick(160) + size) / size);
    std::vector<SmClaim> claims(1 + pick(6));
    for (SmClaim& claim : claims) {
      claim.terms = {pick(1) == 0 ? pick(100) : 0, pick(3) == 0 ? pick(60) : 0};
      if (pick(2) != 0) continue;
      claim.previous.groups = random() & layout.whole();
      claim.previous.reserved = random() & claim.previous.groups;
    }
    const auto divided = DivideSms(layout, layout.whole(), claims);
    ASSERT_EQ(divided.size(), claims.size());
    for (size_t i = 0; i < claims.size(); ++i) {
      if (divided[i].groups == 0) {
        ASSERT_NE(claims[i].terms.reserved, 0u);
        continue;
      }
      ASSERT_EQ(divided[i].groups & ~layout.whole(), 0u);
      if (claims[i].terms.IsLimited()) {
        ASSERT_LE(Count(divided[i].groups), layout.GroupsOf(claims[i].terms.percent));
      }
      for (size_t j = 0; j < claims.size(); ++j) {
        if (j == i) continue;
        ASSERT_EQ(divided[j].groups & divided[i].reserved, 0u);
      }
    }
    std::vector<SmClaim> again = claims;
    for (size_t i = 0; i < claims.size(); ++i) again[i].previous = divided[i];
    ASSERT_EQ(DivideSms(layout, layout.whole(), again), divided) << "round " << round;
  }
}

}  // namespace
}  // namespace gpuloom::arbiter
