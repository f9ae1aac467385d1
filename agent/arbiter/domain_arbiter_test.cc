// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/domain_arbiter.h"

#include <gtest/gtest.h>

#include <vector>

#include "agent/arbiter/cut_point.h"

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kUs = 1'000;
constexpr uint64_t kMs = 1'000'000;
constexpr Engine kCompute = Engine::kCompute;

struct Domain {
  DomainArbiter arbiter;
  NamespaceId space = arbiter.AddNamespace({}, 0);

  SessionId Begin(Priority priority = Priority::kNormal) {
    return arbiter.BeginSession(arbiter.AddAllocation(space, {.priority = priority}, 0), 0);
  }
  void Queue(SessionId session, uint32_t pieces, uint64_t each_ns, uint64_t now_ns = 0) {
    for (; pieces != 0; --pieces) arbiter.Queued(session, kCompute, {1, each_ns}, now_ns);
  }
  void Submit(SessionId session, uint64_t predicted_ns, uint64_t now_ns = 0) {
    arbiter.Submitted(session, kCompute, {1, predicted_ns}, now_ns);
  }
  void Finish(SessionId session, uint64_t predicted_ns, uint64_t now_ns = 0) {
    arbiter.Finished(session, kCompute, {1, predicted_ns}, predicted_ns, now_ns);
  }
};

TEST(DomainArbiter, OneAloneMaySubmitWithoutBound) {
  Domain domain;
  const SessionId session = domain.Begin();
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0));
  domain.Queue(session, 3, kMs);
  for (int i = 0; i < 3; ++i) {
    const auto order = domain.arbiter.Next(kCompute, 0);
    ASSERT_TRUE(order);
    EXPECT_EQ(order->session, session);
    EXPECT_EQ(order->budget_ns, kUnbounded);
    domain.Submit(session, kMs);
  }
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0)) << "nothing is queued";
  EXPECT_EQ(domain.arbiter.ChainBoundNs(session, 0), kUnbounded);
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), UINT64_MAX);
}

TEST(DomainArbiter, PeersHaveSoMuchInFlight) {
  Domain domain;
  const SessionId a = domain.Begin();
  const SessionId b = domain.Begin();
  domain.Queue(a, 100, 100 * kUs);
  domain.Queue(b, 100, 100 * kUs);
  while (const auto order = domain.arbiter.Next(kCompute, 0)) {
    EXPECT_LE(order->budget_ns, EngineLimits().order_ns);
    domain.Submit(order->session, 100 * kUs);
  }
  EXPECT_EQ(domain.arbiter.in_flight_ns(a, kCompute), EngineLimits().session_in_flight_ns);
  EXPECT_EQ(domain.arbiter.in_flight_ns(b, kCompute), EngineLimits().session_in_flight_ns);
}

TEST(DomainArbiter, LowerClassesAreBoundedWhileAHigherOneIsThereAndShortlyAfter) {
  Domain domain;
  const EngineLimits limits;
  const SessionId low = domain.Begin(Priority::kLow);
  const SessionId high = domain.Begin(Priority::kHigh);
  domain.Queue(low, 1000, 30 * kUs);
  domain.Queue(high, 1, 30 * kUs);
  auto order = domain.arbiter.Next(kCompute, 0);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->session, high) << "first";
  domain.Submit(high, 30 * kUs);
  const auto fill = [&](uint64_t now_ns) {
    uint64_t submitted_ns = 0;
    while (const auto next = domain.arbiter.Next(kCompute, now_ns)) {
      EXPECT_EQ(next->session, low);
      EXPECT_LE(next->budget_ns, limits.lower_in_flight_ns);
      domain.Submit(low, 30 * kUs, now_ns);
      submitted_ns += 30 * kUs;
    }
    return submitted_ns;
  };
  EXPECT_EQ(fill(0), 90 * kUs) << "what fits into the bound";
  EXPECT_EQ(domain.arbiter.ChainBoundNs(low, 0), limits.lower_in_flight_ns);
  EXPECT_EQ(domain.arbiter.ChainBoundNs(high, 0), kUnbounded);
  domain.Finish(high, 30 * kUs, kMs);
  EXPECT_FALSE(domain.arbiter.Next(kCompute, kMs)) << "the next request may come soon";
  const uint64_t free_ns = kMs + limits.higher_linger_ns;
  EXPECT_EQ(domain.arbiter.wake_at_ns(kMs), kMs + limits.higher_pause_ns);
  EXPECT_EQ(domain.arbiter.wake_at_ns(kMs + limits.higher_pause_ns), free_ns);
  order = domain.arbiter.Next(kCompute, free_ns);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->budget_ns, kUnbounded);
  EXPECT_EQ(domain.arbiter.ChainBoundNs(low, free_ns), kUnbounded);
}

TEST(DomainArbiter, AllLowerClassesShareOneBoundBesideAHigherOne) {
  Domain domain;
  const SessionId low = domain.Begin(Priority::kLow);
  const SessionId normal = domain.Begin(Priority::kNormal);
  const SessionId high = domain.Begin(Priority::kHigh);
  domain.Queue(high, 1, 30 * kUs);
  domain.Submit(high, 30 * kUs);
  domain.Queue(normal, 2, 30 * kUs);
  domain.Queue(low, 100, 30 * kUs);
  std::vector<SessionId> order;
  while (const auto next = domain.arbiter.Next(kCompute, 0)) {
    order.push_back(next->session);
    domain.Submit(next->session, 30 * kUs);
  }
  EXPECT_EQ(order, (std::vector{normal, normal, low})) << "what the first leaves is the second's";
  domain.Queue(normal, 100, 30 * kUs);
  domain.Finish(normal, 30 * kUs);
  const auto next = domain.arbiter.Next(kCompute, 0);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->session, normal) << "before the lowest class, as ever";
}

// Of a program that is bound by its launches every kernel would wait for one of them.
TEST(DomainArbiter, LongPiecesOfALowerClassDoNotGoBetweenTwoKernelsOfAHigherOne) {
  Domain domain;
  const EngineLimits limits;
  const SessionId low = domain.Begin(Priority::kLow);
  const SessionId high = domain.Begin(Priority::kHigh);
  domain.Queue(low, 100, 200 * kUs);
  uint64_t now = 0;
  for (int i = 0; i < 50; ++i) {
    domain.Queue(high, 1, 20 * kUs, now);
    const auto order = domain.arbiter.Next(kCompute, now);
    ASSERT_TRUE(order);
    EXPECT_EQ(order->session, high);
    domain.Submit(high, 20 * kUs, now);
    EXPECT_FALSE(domain.arbiter.Next(kCompute, now)) << "high is at work";
    domain.Finish(high, 20 * kUs, now += 20 * kUs);
    EXPECT_FALSE(domain.arbiter.Next(kCompute, now)) << "its next kernel comes soon";
    now += 10 * kUs;
  }
  now += limits.higher_pause_ns;
  const auto order = domain.arbiter.Next(kCompute, now);
  ASSERT_TRUE(order) << "the request is over";
  EXPECT_EQ(order->session, low);
  domain.Submit(low, 200 * kUs, now);
  EXPECT_FALSE(domain.arbiter.Next(kCompute, now)) << "one at a time";
}

TEST(DomainArbiter, AStarvedClassIsRescuedAndThenHighGoesOn) {
  Domain domain;
  const EngineLimits limits;
  const SessionId high = domain.Begin(Priority::kHigh);
  const SessionId low = domain.Begin(Priority::kLow);
  domain.Queue(high, 100, 400 * kUs);
  domain.Queue(low, 10, kMs);
  for (int i = 0; i < 2; ++i) domain.Submit(high, 400 * kUs);
  domain.Submit(low, kMs);
  ASSERT_FALSE(domain.arbiter.Next(kCompute, 0));
  const uint64_t due_ns = limits.starvation_ns;
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), due_ns);
  // High finishes one after the other; low's kernel is at the device and does not begin.
  domain.Finish(high, 400 * kUs, due_ns - 1);
  ASSERT_TRUE(domain.arbiter.Next(kCompute, due_ns - 1));
  EXPECT_FALSE(domain.arbiter.Next(kCompute, due_ns)) << "high pauses";
  domain.arbiter.Charge(low, kCompute, 1, due_ns + kMs);  // it has begun
  const auto order = domain.arbiter.Next(kCompute, due_ns + kMs);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->session, high);
}

TEST(DomainArbiter, Malicious_WhoForksIsNotRescuedMoreOften) {
  const EngineLimits limits;
  const auto rescued_after_ns = [&](uint32_t containers, uint32_t processes) {
    Domain domain;
    domain.Queue(domain.Begin(Priority::kHigh), 100, 400 * kUs);
    for (uint32_t i = 0; i < containers; ++i) {
      const AllocationId low =
          domain.arbiter.AddAllocation(domain.space, {.priority = Priority::kLow}, 0);
      for (uint32_t j = 0; j < processes; ++j)
        domain.Queue(domain.arbiter.BeginSession(low, 0), 1, kMs);
    }
    return domain.arbiter.wake_at_ns(0);
  };
  EXPECT_EQ(rescued_after_ns(1, 1), limits.starvation_ns);
  EXPECT_EQ(rescued_after_ns(1, 64), limits.starvation_ns);
  EXPECT_EQ(rescued_after_ns(4, 16), limits.starvation_ns / 4);
}

// Sessions come and go, and their allocation changes its class meanwhile: what each class counts follows.
TEST(DomainArbiter, AnAllocationIsCountedInItsClassWhateverItsSessionsDo) {
  Domain domain;
  const EngineLimits limits;
  domain.Queue(domain.Begin(Priority::kHigh), 100, 400 * kUs);
  const AllocationId moves =
      domain.arbiter.AddAllocation(domain.space, {.priority = Priority::kLow}, 0);
  const SessionId one = domain.arbiter.BeginSession(moves, 0);
  const SessionId other = domain.arbiter.BeginSession(moves, 0);
  domain.Queue(one, 1, kMs);
  domain.Queue(other, 1, kMs);
  domain.Queue(domain.Begin(Priority::kLow), 1, kMs);
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), limits.starvation_ns / 2);
  domain.arbiter.SetAllocation(moves, {.priority = Priority::kHigh}, 0);
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), limits.starvation_ns) << "it is no low one any more";
  domain.arbiter.SetAllocation(moves, {.priority = Priority::kLow}, 0);
  domain.arbiter.Dropped(one, kCompute, {1, kMs}, 0);
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), limits.starvation_ns / 2) << "its other process waits";
  domain.arbiter.EndSession(other, 0);
  EXPECT_EQ(domain.arbiter.wake_at_ns(0), limits.starvation_ns);
}

TEST(DomainArbiter, WhoIsStalledKeepsNobodyBack) {
  Domain domain;
  const SessionId stalled = domain.Begin();
  const SessionId other = domain.Begin();
  domain.Queue(stalled, 1, kUs);
  domain.Submit(stalled, kUs);
  const auto advance = [&] {
    for (int i = 0; i < 100; ++i) {
      domain.Queue(other, 1, 100 * kUs);
      if (!domain.arbiter.Next(kCompute, 0)) return false;
      domain.Submit(other, 100 * kUs);
      domain.arbiter.Charge(other, kCompute, 100 * kUs, 0);
      domain.Finish(other, 100 * kUs);
    }
    return true;
  };
  EXPECT_FALSE(advance()) << "it may be at work: the other waits until it has caught up";
  domain.arbiter.SetStalled(stalled, kCompute, true, 0);
  EXPECT_TRUE(advance());
}

TEST(DomainArbiter, CopiesKnowNoTurns) {
  Domain domain;
  const SessionId high = domain.Begin(Priority::kHigh);
  const SessionId low = domain.Begin(Priority::kLow);
  domain.arbiter.EndTurn();
  domain.Queue(high, 1, 100 * kUs);
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0));
  for (const Engine engine : {Engine::kCopyToDevice, Engine::kCopyFromDevice}) {
    domain.arbiter.Queued(low, engine, {1, 10 * kMs}, 0);
    const auto order = domain.arbiter.Next(engine, 0);
    ASSERT_TRUE(order);
    EXPECT_EQ(order->session, low) << "no other copies";
    EXPECT_EQ(order->budget_ns, kUnbounded);
    domain.arbiter.Submitted(low, engine, {1, 10 * kMs}, 0);
  }
  EXPECT_TRUE(domain.arbiter.drained()) << "which do not keep a turn from draining";
  domain.arbiter.SetTurn(Priority::kHigh, kMs);
  EXPECT_TRUE(domain.arbiter.Next(kCompute, 0)) << "nor take its room";
  domain.arbiter.Finished(low, Engine::kCopyToDevice, {1, 10 * kMs}, 10 * kMs, 10 * kMs);
  EXPECT_TRUE(domain.arbiter.drained());
}

// Whoever sleeps until then would not sleep at all.
TEST(DomainArbiter, NothingIsDueThatATurnDoesNotAllow) {
  Domain domain;
  const SessionId high = domain.Begin(Priority::kHigh);
  const SessionId low = domain.Begin(Priority::kLow);
  domain.Queue(high, 2, 100 * kUs);
  domain.Queue(low, 1, 100 * kUs);
  const uint64_t late_ns = 10 * EngineLimits().starvation_ns;
  EXPECT_LE(domain.arbiter.wake_at_ns(late_ns), late_ns) << "low is to be rescued";
  domain.arbiter.SetTurn(Priority::kHigh, kUnbounded);
  EXPECT_EQ(domain.arbiter.wake_at_ns(late_ns), UINT64_MAX);
  domain.arbiter.SetTurn(Priority::kLow, 50 * kUs);
  EXPECT_LE(domain.arbiter.wake_at_ns(late_ns), late_ns);
  domain.Submit(high, 100 * kUs, late_ns);
  EXPECT_EQ(domain.arbiter.wake_at_ns(late_ns), UINT64_MAX) << "what is in flight comes first";
  domain.arbiter.EndTurn();
  EXPECT_EQ(domain.arbiter.wake_at_ns(late_ns), UINT64_MAX);
}

TEST(DomainArbiter, WithoutATurnNothingGoesAndATurnMayBeOfSomeClasses) {
  Domain domain;
  const SessionId low = domain.Begin(Priority::kLow);
  domain.Queue(low, 10, 100 * kUs);
  domain.arbiter.EndTurn();
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0));
  EXPECT_TRUE(domain.arbiter.drained());
  domain.arbiter.SetTurn(Priority::kNormal, kUnbounded);
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0));
  domain.arbiter.SetTurn(Priority::kLow, 150 * kUs);
  auto order = domain.arbiter.Next(kCompute, 0);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->budget_ns, 150 * kUs);
  EXPECT_EQ(domain.arbiter.ChainBoundNs(low, 0), 150 * kUs);
  domain.Submit(low, 100 * kUs);
  domain.Submit(low, 100 * kUs);
  EXPECT_FALSE(domain.arbiter.Next(kCompute, 0));
  EXPECT_FALSE(domain.arbiter.drained());
  domain.Finish(low, 100 * kUs);
  domain.Finish(low, 100 * kUs);
  EXPECT_TRUE(domain.arbiter.drained());
}

TEST(DomainArbiter, ASessionThatEndsLeavesNothingBehind) {
  Domain domain;
  const SessionId a = domain.Begin(Priority::kHigh);
  const SessionId b = domain.Begin(Priority::kLow);
  domain.Queue(a, 5, kMs);
  domain.Queue(b, 5, kMs);
  domain.Submit(a, kMs);
  domain.arbiter.EndSession(a, 0);
  EXPECT_TRUE(domain.arbiter.drained());
  const uint64_t later_ns = EngineLimits().higher_linger_ns;
  const auto order = domain.arbiter.Next(kCompute, later_ns);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->session, b);
  EXPECT_EQ(order->budget_ns, kUnbounded);
  const SessionId again = domain.Begin();
  EXPECT_EQ(again, a) << "its number is used again";
}

// One second of the device in a tenth of it, or beside an equal sibling that has had nothing.
TEST(DomainArbiter, WhatAnEndedSessionHasOverdrawnIsOwed) {
  for (const bool ceiling : {true, false}) {
    SCOPED_TRACE(ceiling);
    Domain domain;
    const auto other = domain.Begin();
    if (!ceiling) domain.Queue(other, 100, 100 * kUs);
    const NamespaceId space =
        domain.arbiter.AddNamespace({.ceiling_permille = ceiling ? 100u : 1000u}, 0);
    const AllocationId allocation = domain.arbiter.AddAllocation(space, {}, 0);
    EXPECT_FALSE(domain.arbiter.Owes(space, 0) || domain.arbiter.Owes(allocation, 0));
    const SessionId session = domain.arbiter.BeginSession(allocation, 0);
    domain.Queue(session, 1, 1000 * kMs);
    domain.Submit(session, 1000 * kMs);
    domain.Finish(session, 1000 * kMs, 1000 * kMs);
    domain.arbiter.EndSession(session, 1000 * kMs);
    EXPECT_TRUE(domain.arbiter.Owes(space, 10'000 * kMs - 1));
    EXPECT_FALSE(domain.arbiter.Owes(allocation, 1000 * kMs)) << "nobody is beside it there";
    EXPECT_FALSE(domain.arbiter.Owes(space, 11'000 * kMs));
  }
}

TEST(DomainArbiter, EnginesAreSharedApart) {
  Domain domain;
  const SessionId a = domain.Begin();
  const SessionId b = domain.Begin();
  domain.Queue(a, 1, 300 * kMs);
  domain.Submit(a, 300 * kMs);
  domain.Queue(b, 1, kMs);
  for (const SessionId session : {a, b}) {
    domain.arbiter.Queued(session, Engine::kCopyFromDevice, {1, kMs}, 0);
  }
  const auto order = domain.arbiter.Next(Engine::kCopyFromDevice, 0);
  ASSERT_TRUE(order);
  EXPECT_EQ(order->session, a) << "its kernel says nothing about its copies";
}

}  // namespace
}  // namespace gpuloom::arbiter
