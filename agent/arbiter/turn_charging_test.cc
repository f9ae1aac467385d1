// SPDX-License-Identifier: Apache-2.0
// What domains owe for turns that no other domain wanted.
#include <gtest/gtest.h>

#include "agent/arbiter/turn_arbiter.h"

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kMs = 1'000'000;

// Two domains of one namespace with a ceiling; the first has been alone, and its executor has said what it used then.
struct AfterTimeAlone {
  static constexpr uint64_t kBegin = 10'000 * kMs;
  TurnArbiter arbiter;
  NamespaceId limited = arbiter.AddNamespace({.ceiling_permille = 50}, 0);
  DomainId one = arbiter.AddDomain();
  AllocationId a = arbiter.AddAllocation(limited, one, {}, 0);
  AllocationId same_namespace = arbiter.AddAllocation(limited, arbiter.AddDomain(), {}, 0);
  AllocationId other =
      arbiter.AddAllocation(arbiter.AddNamespace({}, 0), arbiter.AddDomain(), {}, 0);

  void BeAlone(uint64_t used_permille) {
    arbiter.SetWants(a, true, 0);
    EXPECT_EQ(arbiter.Next(0)->domain, one);
    for (uint64_t now_ns = 1000 * kMs; now_ns <= kBegin; now_ns += 1000 * kMs) {
      EXPECT_FALSE(arbiter.Next(now_ns));
      const Ran ran{a, used_permille * kMs};
      arbiter.Divide(one, {&ran, 1}, now_ns);
    }
  }
  // How long an allocation has the device in the second that follows.
  uint64_t BesideNs(AllocationId it) {
    const uint64_t before_ns = arbiter.charged_ns(it);
    for (uint64_t now_ns = kBegin; now_ns < kBegin + 1000 * kMs; now_ns += kMs / 10) {
      while (const auto order = arbiter.Next(now_ns)) {
        if (order->kind == TurnOrder::Kind::kYield) arbiter.Drained(order->domain, now_ns);
      }
    }
    return arbiter.charged_ns(it) - before_ns;
  }
};

// A turn lasts for as long as its domain wants anything, as a program always does that waits at its ceiling. It used to owe
// all of that: twenty times as long without a turn.
TEST(TurnCharging, ATurnThatNobodyElseWantedCostsWhatWasUsed) {
  AfterTimeAlone scheduler;
  scheduler.BeAlone(50);
  scheduler.arbiter.SetWants(scheduler.other, true, AfterTimeAlone::kBegin);
  const uint64_t beside_ns = scheduler.BesideNs(scheduler.a);
  EXPECT_GE(beside_ns, 40 * kMs);
  EXPECT_LE(beside_ns, 60 * kMs);
}

TEST(TurnCharging, WhatIsUsedAloneCountsAgainstTheCeilingOfTheWholeNamespace) {
  AfterTimeAlone scheduler;
  // Each executor has a ceiling of its own, which a burst may exceed.
  scheduler.BeAlone(60);
  scheduler.arbiter.SetWants(scheduler.a, false, AfterTimeAlone::kBegin);
  scheduler.arbiter.SetWants(scheduler.same_namespace, true, AfterTimeAlone::kBegin);
  scheduler.arbiter.SetWants(scheduler.other, true, AfterTimeAlone::kBegin);
  EXPECT_EQ(scheduler.BesideNs(scheduler.same_namespace), 0u) << "the debt of ten seconds: 2 s";
}

}  // namespace
}  // namespace gpuloom::arbiter
