// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/device_time.h"

#include <gtest/gtest.h>

#include <array>

namespace gpuloom::scheduler {
namespace {

TEST(DeviceTime, WhoIsAloneMayBeChargedForAllOfIt) {
  DeviceTime time;
  time.Add(1, 1000);
  time.SetTurn(1, true, 1000);
  EXPECT_EQ(time.Charge(1, 0, 300, 1500), 300u);
  EXPECT_EQ(time.Charge(1, 0, 300, 1500), 200u) << "no more than has passed";
  EXPECT_EQ(time.Charge(1, 1, 500, 1500), 500u) << "the other engines have times of their own";
  EXPECT_EQ(time.Charge(1, 0, 300, 1600), 100u);
}

TEST(DeviceTime, TurnsBelongToWhoHasThem) {
  DeviceTime time;
  time.Add(1, 0);
  time.Add(2, 0);
  time.SetTurn(1, true, 0);
  time.SetTurn(1, false, 60);
  time.SetTurn(2, true, 60);
  time.SetTurn(2, false, 100);
  EXPECT_EQ(time.Charge(1, 0, 1000, 100), 60u);
  EXPECT_EQ(time.Charge(2, 0, 1000, 100), 40u);
}

TEST(DeviceTime, OverlapsAndPausesAreDivided) {
  DeviceTime time;
  time.Add(1, 0);
  time.Add(2, 0);
  time.SetTurn(1, true, 0);
  time.SetTurn(2, true, 100);  // the first one's has not drained
  time.SetTurn(1, false, 200);
  time.SetTurn(2, false, 250);
  EXPECT_EQ(time.Charge(1, 0, 1000, 350), 100u + 50 + 50);
  EXPECT_EQ(time.Charge(2, 0, 1000, 350), 50u + 50 + 50);
}

constexpr uint64_t kSecond = 1'000'000'000;

// Each second two executors say what they have copied; the first one has the only turn.
std::array<uint64_t, 2> ChargedForCopies(uint64_t first_ns, uint64_t second_ns) {
  DeviceTime time;
  time.Add(1, 0);
  time.Add(2, 0);
  time.SetTurn(1, true, 0);
  std::array<uint64_t, 2> charged_ns = {};
  std::array<uint64_t, 2> open_ns = {};
  for (uint64_t now_ns = kSecond; now_ns <= 100 * kSecond; now_ns += kSecond) {
    for (uint64_t i = 0; i < 2; ++i) {
      open_ns[i] += i == 0 ? first_ns : second_ns;
      const uint64_t granted_ns = time.Charge(i + 1, 1, open_ns[i], now_ns);
      open_ns[i] -= granted_ns;
      charged_ns[i] += granted_ns;
    }
  }
  return charged_ns;
}

TEST(DeviceTime, CopiesNeedNoTurn) {
  EXPECT_EQ(ChargedForCopies(0, kSecond / 4)[1], 25 * kSecond);
  const auto alone = ChargedForCopies(0, kSecond);
  EXPECT_GE(alone[1], 98 * kSecond) << "all of it, some two seconds later";
  const auto both = ChargedForCopies(kSecond, kSecond);
  EXPECT_EQ(both[0], 50 * kSecond);
  EXPECT_EQ(both[1], 50 * kSecond);
  const auto some = ChargedForCopies(kSecond / 10, kSecond);
  EXPECT_EQ(some[0], 10 * kSecond);
  EXPECT_GE(some[1], 87 * kSecond);
}

TEST(DeviceTime, Malicious_WhoClaimsAllLeavesOthersTheirPart) {
  const auto charged = ChargedForCopies(1000 * kSecond, kSecond / 2);
  EXPECT_EQ(charged[1], 50 * kSecond);
  EXPECT_LE(charged[0] + charged[1], 100 * kSecond);
}

TEST(DeviceTime, Malicious_NobodyClaimsCopiesOfATimeBeforeHisOwn) {
  DeviceTime time;
  time.Add(1, 0);
  time.Add(2, 3600 * kSecond);
  EXPECT_EQ(time.Charge(2, 1, UINT64_MAX, 3601 * kSecond), kSecond);
  EXPECT_EQ(time.Charge(2, 1, UINT64_MAX, 3602 * kSecond), kSecond);
}

TEST(DeviceTime, Malicious_AllTogetherAreNeverChargedForMoreThanHasPassed) {
  DeviceTime time;
  uint64_t charged_ns = 0;
  uint64_t copied_ns = 0;
  for (uint64_t now_ns = 1; now_ns < 5000; ++now_ns) {
    const uint64_t who = now_ns * 7 % 4;
    if (now_ns % 11 == 0) time.Remove(who, now_ns);
    time.Add(who, now_ns);
    time.SetTurn(who, now_ns % 3 != 0, now_ns);
    charged_ns += time.Charge(who, 0, UINT64_MAX, now_ns);
    copied_ns += time.Charge(who, 2, UINT64_MAX, now_ns);
    ASSERT_LE(charged_ns, now_ns);
    ASSERT_LE(copied_ns, now_ns);
  }
  EXPECT_GT(charged_ns, 0u);
  EXPECT_GT(copied_ns, 0u);
}

TEST(DeviceTime, AnUnknownOneHasNoPart) {
  DeviceTime time;
  time.SetTurn(9, true, 5);
  time.Remove(9, 6);
  EXPECT_EQ(time.Charge(9, 0, 10, 10), 0u);
}

}  // namespace
}  // namespace gpuloom::scheduler
