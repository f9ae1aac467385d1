// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/turn_arbiter.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "agent/arbiter/cut_point.h"

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kMs = 1'000'000;
using Kind = TurnOrder::Kind;

struct Scheduler {
  TurnLimits limits;
  TurnArbiter arbiter{limits};
  NamespaceId space = arbiter.AddNamespace({}, 0);

  DomainId Domain() { return arbiter.AddDomain(); }
  AllocationId Allocation(DomainId domain, Priority priority = Priority::kNormal) {
    return arbiter.AddAllocation(space, domain, {.priority = priority}, 0);
  }
};

TEST(TurnArbiter, ALoneDomainGetsATurnWithoutEndAndNoMessageMore) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId domain = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(domain);
  EXPECT_FALSE(arbiter.Next(0));
  arbiter.SetWants(a, true, 0);
  const auto order = arbiter.Next(0);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kGrant);
  EXPECT_EQ(order->lowest, Priority::kLow);
  EXPECT_EQ(order->in_flight_ns, kUnbounded);
  for (uint64_t now_ns = 0; now_ns < 1000 * kMs; now_ns += kMs) EXPECT_FALSE(arbiter.Next(now_ns));
  EXPECT_EQ(arbiter.wake_at_ns(1000 * kMs), UINT64_MAX);
  // What it does not want is not charged.
  arbiter.SetWants(a, false, 1000 * kMs);
  EXPECT_FALSE(arbiter.Next(3000 * kMs));
  arbiter.SetWants(a, true, 3000 * kMs);
  EXPECT_FALSE(arbiter.Next(3500 * kMs)) << "its turn has not ended";
  EXPECT_EQ(arbiter.charged_ns(domain), 1500 * kMs);
}

TEST(TurnArbiter, ALoneDomainIsNotBoundedByItsOwnHigherClass) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId domain = scheduler.Domain();
  const AllocationId low = scheduler.Allocation(domain, Priority::kLow);
  const AllocationId high = scheduler.Allocation(domain, Priority::kHigh);
  arbiter.SetWants(low, true, 0);
  EXPECT_EQ(arbiter.Next(0)->in_flight_ns, kUnbounded);
  arbiter.SetWants(high, true, kMs);
  EXPECT_FALSE(arbiter.Next(kMs)) << "that is its own arbiter's to see to";
  arbiter.SetWants(high, false, 2 * kMs);
  EXPECT_FALSE(arbiter.Next(2 * kMs));
}

TEST(TurnArbiter, TwoTakeTurnsAndAreAcknowledged) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId one = scheduler.Domain();
  const DomainId two = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(one);
  const AllocationId b = scheduler.Allocation(two);
  arbiter.SetWants(a, true, 0);
  ASSERT_EQ(arbiter.Next(0)->domain, one);
  arbiter.SetWants(b, true, kMs);
  auto order = arbiter.Next(kMs);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kGrant) << "the bounds of a turn that others wait for";
  EXPECT_EQ(order->in_flight_ns, scheduler.limits.in_flight_ns);
  EXPECT_FALSE(arbiter.Next(kMs));

  uint64_t now_ns = arbiter.wake_at_ns(kMs);
  EXPECT_LE(now_ns, kMs + scheduler.limits.quantum_ns);
  order = arbiter.Next(now_ns);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kYield);
  EXPECT_EQ(order->domain, one);
  EXPECT_FALSE(arbiter.Next(now_ns)) << "it is waited for";
  arbiter.Drained(one, now_ns + kMs);
  order = arbiter.Next(now_ns + kMs);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kGrant);
  EXPECT_EQ(order->domain, two);
  EXPECT_EQ(arbiter.charged_ns(one), now_ns + kMs);
  EXPECT_EQ(arbiter.charged_ns(a), now_ns + kMs);
}

// Nothing of `one` is at the device any more, which has the turn, and `two` comes.
struct Leaving : Scheduler {
  DomainId one = Domain();
  DomainId two = Domain();
  AllocationId a = Allocation(one);
  AllocationId b = Allocation(two);

  Leaving() {
    arbiter.SetWants(a, true, 0);
    EXPECT_EQ(arbiter.Next(0)->domain, one);
    arbiter.SetWants(a, false, kMs);
    EXPECT_FALSE(arbiter.Next(kMs));
    arbiter.SetWants(b, true, 2 * kMs);
    const auto yield = arbiter.Next(2 * kMs);
    EXPECT_TRUE(yield && yield->kind == Kind::kYield && yield->domain == one);
    const auto grant = arbiter.Next(2 * kMs);
    EXPECT_TRUE(grant && grant->kind == Kind::kGrant && grant->domain == two)
        << "its answer is not waited for";
    EXPECT_FALSE(arbiter.Next(2 * kMs));
  }
};

TEST(TurnArbiter, WhoWantsNothingIsNotWaitedFor) {
  Leaving leaving;
  TurnArbiter& arbiter = leaving.arbiter;
  arbiter.Drained(leaving.one, 2 * kMs + 100);
  EXPECT_FALSE(arbiter.Next(100 * kMs));
  EXPECT_EQ(arbiter.overruns(leaving.one), 0u);
  arbiter.SetWants(leaving.b, false, 100 * kMs);
  EXPECT_EQ(arbiter.charged_ns(leaving.one), kMs + 50) << "until it had answered, beside the other";
  EXPECT_EQ(arbiter.charged_ns(leaving.two), 98 * kMs - 50);
  // The other way round.
  arbiter.SetWants(leaving.a, true, 101 * kMs);
  EXPECT_EQ(arbiter.Next(101 * kMs)->kind, Kind::kYield);
  EXPECT_EQ(arbiter.Next(101 * kMs)->domain, leaving.one);
}

TEST(TurnArbiter, Malicious_WhoSaysThatItWantsNothingAndStaysOverruns) {
  Leaving leaving;
  TurnArbiter& arbiter = leaving.arbiter;
  const uint64_t late_ns = 2 * kMs + leaving.limits.overrun_ns;
  EXPECT_EQ(arbiter.wake_at_ns(3 * kMs), late_ns);
  EXPECT_FALSE(arbiter.Next(late_ns));
  EXPECT_EQ(arbiter.overruns(leaving.one), 1u);
  // It loses its next turn, and is reported as any other.
  arbiter.SetWants(leaving.a, true, late_ns);
  EXPECT_EQ(arbiter.Next(late_ns + kMs)->domain, leaving.two) << "whose turn has a bound now";
  EXPECT_FALSE(arbiter.Next(100 * kMs));
  const auto report = arbiter.Next(2 * kMs + leaving.limits.report_ns);
  ASSERT_TRUE(report);
  EXPECT_EQ(report->kind, Kind::kReport);
  EXPECT_EQ(report->domain, leaving.one);
  arbiter.Drained(leaving.one, 2 * kMs + leaving.limits.report_ns);
  const uint64_t beside_ns = leaving.limits.report_ns;
  EXPECT_EQ(arbiter.charged_ns(leaving.one), kMs + beside_ns / 2);
}

TEST(TurnArbiter, OneThatWantsAgainBeforeItHasAnsweredGetsItsTurn) {
  Leaving leaving;
  TurnArbiter& arbiter = leaving.arbiter;
  arbiter.SetWants(leaving.a, true, 2 * kMs + 100);
  arbiter.SetWants(leaving.b, false, 3 * kMs);
  EXPECT_EQ(arbiter.Next(3 * kMs)->kind, Kind::kYield);
  const auto grant = arbiter.Next(3 * kMs);
  ASSERT_TRUE(grant);
  EXPECT_EQ(grant->kind, Kind::kGrant);
  EXPECT_EQ(grant->domain, leaving.one);
  arbiter.Drained(leaving.two, 3 * kMs + 100);
  EXPECT_FALSE(arbiter.Next(200 * kMs));
  EXPECT_EQ(arbiter.overruns(leaving.one), 0u);
}

TEST(TurnArbiter, HighEndsALowTurnAtOnce) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId one = scheduler.Domain();
  const DomainId two = scheduler.Domain();
  const AllocationId low = scheduler.Allocation(one, Priority::kLow);
  const AllocationId high = scheduler.Allocation(two, Priority::kHigh);
  arbiter.SetWants(low, true, 0);
  ASSERT_TRUE(arbiter.Next(0));
  arbiter.SetWants(high, true, 100);
  auto order = arbiter.Next(100);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->kind, Kind::kYield);
  arbiter.Drained(one, 200);
  order = arbiter.Next(200);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->domain, two);
  EXPECT_EQ(order->lowest, Priority::kHigh);
  // High has enough: low goes on, bounded, because the next request may come soon.
  arbiter.SetWants(high, false, 300);
  ASSERT_EQ(arbiter.Next(300)->kind, Kind::kYield);
  arbiter.Drained(two, 300);
  order = arbiter.Next(300);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->domain, one);
}

TEST(TurnArbiter, OneThatOverrunsLosesItsTurnIsReportedAndComesBack) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId deaf = scheduler.Domain();
  const DomainId honest = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(deaf);
  const AllocationId b = scheduler.Allocation(honest);
  arbiter.SetWants(a, true, 0);
  ASSERT_TRUE(arbiter.Next(0));
  arbiter.SetWants(b, true, 0);
  ASSERT_TRUE(arbiter.Next(0));
  uint64_t now_ns = arbiter.wake_at_ns(0);
  ASSERT_EQ(arbiter.Next(now_ns)->kind, Kind::kYield);
  const uint64_t yields_ns = now_ns;
  now_ns = arbiter.wake_at_ns(now_ns);
  EXPECT_EQ(now_ns, yields_ns + scheduler.limits.overrun_ns);
  auto order = arbiter.Next(now_ns);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->domain, honest) << "it is not waited for any longer";
  EXPECT_EQ(arbiter.overruns(deaf), 1u);
  bool reported = false;
  for (; now_ns < yields_ns + 2 * scheduler.limits.report_ns; now_ns += kMs) {
    while ((order = arbiter.Next(now_ns))) {
      if (order->kind == Kind::kReport) {
        EXPECT_FALSE(reported) << "once";
        EXPECT_EQ(order->domain, deaf);
        EXPECT_GE(now_ns, yields_ns + scheduler.limits.report_ns);
        reported = true;
      }
      ASSERT_NE(order->kind, Kind::kYield) << "nobody else may have a turn";
    }
  }
  EXPECT_TRUE(reported);
  // Both were at the device: each moment was divided.
  EXPECT_NEAR(double(arbiter.charged_ns(deaf)), double(now_ns) / 2, 20.0 * kMs);
  arbiter.Drained(deaf, now_ns);
  bool again = false;
  for (const uint64_t end_ns = now_ns + 3'000 * kMs; now_ns < end_ns; now_ns += kMs) {
    while ((order = arbiter.Next(now_ns))) {
      if (order->kind == Kind::kYield) arbiter.Drained(order->domain, now_ns);
      again |= order->kind == Kind::kGrant && order->domain == deaf;
    }
  }
  EXPECT_TRUE(again);
}

// Two domains. The first always wants the device, and drains so long after it was asked; UINT64_MAX: never. The second drains at once.
struct Beside {
  // Of the second: always wants it if rests_ns is 0.
  uint64_t works_ns = 0, rests_ns = 0;
  // Of the first: ends its executor when it would have drained, and the next one wants the device, too.
  bool ends_instead = false;

  Scheduler scheduler;
  DomainId slow = scheduler.Domain();
  DomainId quick = scheduler.Domain();
  std::vector<uint64_t> ends_ns;   // when the first is to be ended
  uint64_t slow_at_device_ns = 0;  // from each Grant until it has drained
  uint64_t wanted_ns = 0;          // by the second
  std::vector<uint64_t> granted;   // to the first, when it had drained before

  void Run(AllocationPolicy of_slow, AllocationPolicy of_quick, uint64_t drain_ns,
           uint64_t until_ns) {
    TurnArbiter& arbiter = scheduler.arbiter;
    const AllocationId first = arbiter.AddAllocation(scheduler.space, slow, of_slow, 0);
    arbiter.SetWants(first, true, 0);
    EXPECT_TRUE(arbiter.Next(0));
    const AllocationId other = arbiter.AddAllocation(scheduler.space, quick, of_quick, 0);
    arbiter.SetWants(other, true, 0);
    uint64_t granted_ns = 0, drains_ns = UINT64_MAX;
    uint64_t changes_ns = rests_ns == 0 ? UINT64_MAX : works_ns, since_ns = 0;
    bool wants = true, drained = false;
    for (uint64_t now_ns = 0; now_ns < until_ns;
         now_ns =
             std::max(now_ns + 1, std::min({arbiter.wake_at_ns(now_ns), drains_ns, changes_ns}))) {
      if (now_ns >= changes_ns) {
        if (wants) wanted_ns += now_ns - since_ns;
        wants = !wants;
        since_ns = now_ns;
        changes_ns = now_ns + (wants ? works_ns : rests_ns);
        arbiter.SetWants(other, wants, now_ns);
      }
      if (now_ns >= drains_ns) {
        if (ends_instead) {
          arbiter.ExecutorEnded(slow, now_ns);
          arbiter.SetWants(first, true, now_ns);
        }
        arbiter.Drained(slow, now_ns);
        slow_at_device_ns += now_ns - granted_ns;
        drains_ns = UINT64_MAX;
        drained = true;
      }
      while (const auto order = arbiter.Next(now_ns)) {
        const bool is_slow = order->domain == slow;
        if (order->kind == Kind::kEnd) {
          EXPECT_TRUE(is_slow);
          ends_ns.push_back(now_ns);
        }
        if (order->kind == Kind::kGrant && is_slow) {
          granted_ns = now_ns;
          if (drained) granted.push_back(now_ns);
          drained = false;
        }
        if (order->kind != Kind::kYield) continue;
        if (!is_slow) arbiter.Drained(quick, now_ns);
        if (is_slow && drain_ns != UINT64_MAX) drains_ns = now_ns + drain_ns;
      }
    }
    if (wants) wanted_ns += until_ns - since_ns;
  }
};

constexpr uint64_t kSecond = 1000 * kMs;

TEST(TurnArbiter, Malicious_OneThatNeverDrainsIsEnded) {
  const std::pair<AllocationPolicy, AllocationPolicy> policies[] = {
      {{.weight = 1}, {.weight = 99}},
      {{.weight = 99}, {.weight = 1}},
      {{.priority = Priority::kLow}, {.priority = Priority::kHigh}},
      {{.priority = Priority::kHigh}, {.priority = Priority::kLow}}};
  for (const auto& [of_slow, of_quick] : policies) {
    Beside two;
    const uint64_t end_ns = two.scheduler.limits.overrun_end_ns;
    two.Run(of_slow, of_quick, UINT64_MAX, 3 * end_ns);
    ASSERT_EQ(two.ends_ns.size(), 1u);
    // Half of the time is the other's. A turn of high's beside low begins only where low is rescued, and is counted no less.
    EXPECT_GE(two.ends_ns[0], 2 * end_ns);
    EXPECT_LE(two.ends_ns[0], 2 * end_ns + kSecond);
  }
}

TEST(TurnArbiter, ALongKernelCostsNobodyHisExecutor) {
  for (const uint64_t kernel_ns : {20 * kMs, 3 * kSecond, 240 * kSecond}) {
    Beside two;
    two.Run({}, {}, kernel_ns, 10 * kernel_ns + 100 * kSecond);
    EXPECT_TRUE(two.ends_ns.empty());
    EXPECT_GT(two.scheduler.arbiter.overruns(two.slow), 2u);
  }
}

// Nobody is ended for kernels below the limit, one after another; so they are not to be worth it, whether or not the other pauses now and then.
TEST(TurnArbiter, Malicious_LongOverrunsGainNoMoreThanTheShareOrATenth) {
  for (const uint32_t weight : {1, 10, 25, 50, 75}) {
    for (const uint64_t kernel_ns : {3 * kSecond, 60 * kSecond}) {
      for (const uint64_t rests_ns : {uint64_t{0}, 20 * kMs}) {
        for (const bool ends : {false, true}) {
          SCOPED_TRACE(std::to_string(weight) + " %, " + std::to_string(kernel_ns / kSecond) +
                       " s, rests of " + std::to_string(rests_ns / kMs) + " ms, " +
                       (ends ? "ends" : "drains"));
          Beside two;
          two.works_ns = 80 * kMs;
          two.rests_ns = rests_ns;
          two.ends_instead = ends;
          two.Run({.weight = weight}, {.weight = 100 - weight}, kernel_ns, 30 * kernel_ns);
          EXPECT_TRUE(two.ends_ns.empty());
          EXPECT_GT(two.granted.size(), 1u);
          const double part = std::max(weight / 100.0, 0.1);
          const auto wanted = double(two.wanted_ns);
          const auto got = double(two.scheduler.arbiter.charged_ns(two.quick));
          // It may have had its last kernel, and not paid for it yet.
          EXPECT_GE(got, wanted * (1 - part - 0.02) - double(kernel_ns) / 2);
          // And what is its own, it gets; of more than a half, half, because each moment of an overrun is divided.
          const auto slow = double(two.scheduler.arbiter.charged_ns(two.slow));
          const double own = std::min(weight / 100.0, 0.5);
          EXPECT_GE(slow, wanted * (own - 0.03) - double(kernel_ns) / 2);
        }
      }
    }
  }
}

TEST(TurnArbiter, WhoeverOverranWaitsForNobodyWhoWantsNothing) {
  Beside two;
  two.works_ns = 100 * kSecond;
  two.rests_ns = 1000 * kSecond;
  two.Run({.weight = 1}, {.weight = 99}, 60 * kSecond, 1000 * kSecond);
  EXPECT_GT(two.scheduler.arbiter.overruns(two.slow), 0u);
  ASSERT_EQ(two.granted.size(), 1u);
  const uint64_t quiet_ns = two.works_ns + two.scheduler.limits.quiet_ns;
  EXPECT_GE(two.granted[0], quiet_ns);
  EXPECT_LE(two.granted[0], quiet_ns + two.scheduler.limits.quantum_ns);
}

TEST(TurnArbiter, ALongOverrunBesideAHigherClassIsPaidToo) {
  Beside two;
  two.works_ns = 80 * kMs;
  two.rests_ns = 20 * kMs;  // in which low has turns without being rescued
  two.Run({.priority = Priority::kLow}, {.priority = Priority::kHigh}, 60 * kSecond,
          3000 * kSecond);
  EXPECT_GT(two.granted.size(), 1u);
  EXPECT_GE(double(two.scheduler.arbiter.charged_ns(two.quick)), double(two.wanted_ns) * 0.87);
}

TEST(TurnArbiter, ADomainThatIsGoneOwesNothingUnderItsNumber) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId slow = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(slow);
  const NamespaceId heavy = arbiter.AddNamespace({.weight = 900}, 0);
  const AllocationId b = arbiter.AddAllocation(heavy, scheduler.Domain(), {}, 0);
  arbiter.SetWants(a, true, 0);
  ASSERT_TRUE(arbiter.Next(0));
  arbiter.SetWants(b, true, 0);
  uint64_t now_ns = 0;
  for (; now_ns < 10 * kSecond; now_ns += kMs) {
    while (arbiter.Next(now_ns)) {
    }
  }
  arbiter.Drained(slow, now_ns);
  EXPECT_GT(arbiter.owes_ns(slow), 30 * kSecond);
  EXPECT_LT(arbiter.owes_ns(slow), 41 * kSecond);
  arbiter.RemoveAllocation(a, now_ns);
  arbiter.RemoveDomain(slow, now_ns);
  const DomainId young = scheduler.Domain();
  ASSERT_EQ(young, slow);
  EXPECT_EQ(arbiter.owes_ns(young), 0u);
  // In another namespace: this one's time has been used.
  const NamespaceId other = arbiter.AddNamespace({}, now_ns);
  arbiter.SetWants(arbiter.AddAllocation(other, young, {}, now_ns), true, now_ns);
  bool granted = false;
  for (const uint64_t end_ns = now_ns + kSecond; now_ns < end_ns; now_ns += kMs) {
    while (const auto order = arbiter.Next(now_ns)) {
      if (order->kind == Kind::kYield) arbiter.Drained(order->domain, now_ns);
      granted |= order->kind == Kind::kGrant && order->domain == young;
    }
  }
  EXPECT_TRUE(granted);
}

TEST(TurnArbiter, HowLongAnOverrunMayLastIsTheDomains) {
  Beside two;
  two.scheduler.arbiter.SetOverrunEnd(two.slow, 1000 * kSecond);
  two.Run({}, {}, UINT64_MAX, 1900 * kSecond);
  EXPECT_TRUE(two.ends_ns.empty());
  EXPECT_GT(two.scheduler.arbiter.overran_ns(two.slow), 900 * kSecond);
}

TEST(TurnArbiter, WhatNobodyElseWantsIsNotOverrun) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId deaf = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(deaf);
  const AllocationId b = scheduler.Allocation(scheduler.Domain());
  arbiter.SetWants(a, true, 0);
  ASSERT_TRUE(arbiter.Next(0));
  arbiter.SetWants(b, true, 0);
  uint64_t now_ns = 0;
  for (; now_ns < kSecond; now_ns += kMs) {
    while (arbiter.Next(now_ns)) {
    }
  }
  const uint64_t overran_ns = arbiter.overran_ns(deaf);
  EXPECT_NEAR(double(overran_ns), double(kSecond) / 2, 20.0 * kMs);
  arbiter.SetWants(b, false, now_ns);
  for (; now_ns < 1000 * kSecond; now_ns += kSecond) {
    while (const auto order = arbiter.Next(now_ns)) ASSERT_NE(order->kind, Kind::kEnd);
  }
  EXPECT_LE(arbiter.overran_ns(deaf), overran_ns + kMs);
}

// Starvation is to be prevented at a tenth of the time, also where one kernel runs for longer than a turn.
TEST(TurnArbiter, LongKernelsOfALowClassTakeATenthOfTheTimeFromAHighOne) {
  Beside two;
  constexpr uint64_t kUntil = 1000 * kSecond;
  two.Run({.priority = Priority::kLow}, {.priority = Priority::kHigh}, 3 * kSecond, kUntil);
  EXPECT_LT(two.slow_at_device_ns, kUntil * 12 / 100);
  EXPECT_GT(two.slow_at_device_ns, kUntil * 8 / 100);
}

TEST(TurnArbiter, Malicious_WhatAnExecutorSaysOnlyDividesItsOwnTime) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId liar = scheduler.Domain();
  const DomainId other = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(liar);
  const AllocationId b = scheduler.Allocation(liar);
  const AllocationId victim = scheduler.Allocation(other);
  arbiter.SetWants(a, true, 0);
  arbiter.SetWants(victim, true, 0);
  ASSERT_EQ(arbiter.Next(0)->domain, liar);
  const Ran lies[] = {{victim, 1000},  {AllocationId{9999}, 5},
                      {a, UINT64_MAX}, {AllocationId{UINT32_MAX}, 1},
                      {b, UINT64_MAX}, {b, 0}};
  arbiter.Divide(liar, lies, 10 * kMs);
  EXPECT_EQ(arbiter.charged_ns(victim), 0u);
  EXPECT_EQ(arbiter.charged_ns(a), 5 * kMs);
  EXPECT_EQ(arbiter.charged_ns(b), 5 * kMs);
  // And the next honest one is served.
  ASSERT_EQ(arbiter.Next(10 * kMs)->kind, Kind::kYield);
  arbiter.Drained(liar, 10 * kMs);
  EXPECT_EQ(arbiter.Next(10 * kMs)->domain, other);
}

// A neighbour's kernel without an end fills what its domain may have in flight, so it is given turns, and uses none of them.
TEST(TurnArbiter, WhoGetsNothingDoneInItsTurnsKeepsNobodyWaiting) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId one = scheduler.Domain();
  const DomainId two = scheduler.Domain();
  const AllocationId busy = scheduler.Allocation(one);
  const AllocationId stuck = scheduler.Allocation(one);
  const AllocationId other = scheduler.Allocation(two);
  for (const AllocationId allocation : {busy, stuck, other}) arbiter.SetWants(allocation, true, 0);
  uint64_t of_two_ms = 0;
  DomainId has_turn = one;
  for (uint64_t now_ns = 0; now_ns < 3000 * kMs; now_ns += kMs) {
    while (const auto order = arbiter.Next(now_ns)) {
      if (order->kind == Kind::kGrant) has_turn = order->domain;
      if (order->kind == Kind::kYield) arbiter.Drained(order->domain, now_ns);
    }
    of_two_ms += has_turn == two;
    const std::vector<Ran> ran = {{has_turn == one ? busy : other, kMs}};
    arbiter.Divide(has_turn, ran, now_ns);
  }
  // Of three that want the same, two of one domain.
  EXPECT_GE(of_two_ms, 900u);
  EXPECT_LE(of_two_ms, 2100u);
}

TEST(TurnArbiter, AnExecutorThatEndsLeavesItsTurn) {
  Scheduler scheduler;
  TurnArbiter& arbiter = scheduler.arbiter;
  const DomainId one = scheduler.Domain();
  const DomainId two = scheduler.Domain();
  const AllocationId a = scheduler.Allocation(one);
  const AllocationId b = scheduler.Allocation(two);
  arbiter.SetWants(a, true, 0);
  arbiter.SetWants(b, true, 0);
  ASSERT_EQ(arbiter.Next(0)->domain, one);
  arbiter.ExecutorEnded(one, kMs);
  const auto order = arbiter.Next(kMs);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->domain, two);
  EXPECT_EQ(arbiter.charged_ns(one), kMs);
  arbiter.RemoveAllocation(a, kMs);
  arbiter.RemoveDomain(one, kMs);
  EXPECT_EQ(scheduler.Domain(), one) << "its number is used again";
  EXPECT_EQ(arbiter.charged_ns(b), 0u);
}

// Random events and an executor that says anything: the sums stay exact and somebody has a turn when somebody wants one.
TEST(TurnArbiter, RandomEventsKeepTheSumsExact) {
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 random(seed);
    Scheduler scheduler;
    TurnArbiter& arbiter = scheduler.arbiter;
    std::vector<DomainId> domains;
    std::vector<AllocationId> allocations;
    for (int i = 0; i < 5; ++i) domains.push_back(scheduler.Domain());
    for (int i = 0; i < 15; ++i) {
      allocations.push_back(scheduler.Allocation(domains[i % 5], kAllPriorities[random() % 3]));
    }
    std::vector<DomainId> to_drain;
    uint64_t now_ns = 0;
    for (int i = 0; i < 5000; ++i) {
      now_ns += random() % (2 * kMs);
      const AllocationId allocation = allocations[random() % allocations.size()];
      const DomainId domain = domains[random() % domains.size()];
      switch (random() % 6) {
        case 0:
        case 1:
          arbiter.SetWants(allocation, random() % 3 != 0, now_ns);
          break;
        case 2: {
          const Ran ran[] = {{allocation, random()}, {allocations[random() % 15], random() % 9}};
          arbiter.Divide(domain, ran, now_ns);
          break;
        }
        case 3:
          if (random() % 50 == 0) arbiter.ExecutorEnded(domain, now_ns);
          arbiter.Drained(domain, now_ns);
          break;
        default:
          for (const DomainId drained : to_drain) arbiter.Drained(drained, now_ns);
          to_drain.clear();
      }
      int orders = 0;
      while (const auto order = arbiter.Next(now_ns)) {
        if (order->kind == Kind::kYield) to_drain.push_back(order->domain);
        ASSERT_LT(++orders, 20) << "orders come to an end";
      }
    }
    for (const DomainId domain : domains) arbiter.ExecutorEnded(domain, now_ns);
    uint64_t of_domains = 0;
    uint64_t of_allocations = arbiter.unattributed_ns();
    for (const DomainId domain : domains) of_domains += arbiter.charged_ns(domain);
    for (const AllocationId it : allocations) of_allocations += arbiter.charged_ns(it);
    EXPECT_EQ(of_domains, of_allocations);
    EXPECT_GT(of_domains, now_ns / 2);
  }
}

}  // namespace
}  // namespace gpuloom::arbiter
