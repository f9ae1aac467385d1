// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/kernel_watch.h"

#include <gtest/gtest.h>

namespace gpuloom::arbiter {
namespace {

constexpr uint64_t kMs = 1'000'000;
constexpr uint64_t kPollNs = 100 * kMs;

// One session's piece, of the allocation with the same number.
AtHead Head(uint32_t session, uint64_t piece, uint64_t since_ns, bool watched = true) {
  AtHead head;
  head.session = SessionId{session};
  head.allocation = AllocationId{session};
  head.piece = piece;
  head.since_ns = since_ns;
  head.watched = watched;
  return head;
}

void Look(KernelWatch* watch, const std::vector<AtHead>& heads, uint64_t now_ns) {
  watch->Look(heads, now_ns);
}

// What is said of the session's piece when these are there from `from_ns` on, looked at for a second.
uint64_t AfterASecond(const std::vector<AtHead>& heads, const AtHead& of, uint64_t from_ns = 0) {
  KernelWatch watch;
  for (uint64_t now = from_ns; now <= from_ns + 1000 * kMs; now += kPollNs) watch.Look(heads, now);
  return watch.ran_ns(of.session, of.piece);
}

TEST(KernelWatch, OneThatIsAloneRunsFromItsFirstLookOn) {
  const AtHead lone = Head(1, 7, 0);
  EXPECT_EQ(AfterASecond({lone}, lone), 1000 * kMs);
  KernelWatch watch;
  Look(&watch, {lone}, 50 * kMs);
  EXPECT_EQ(watch.ran_ns(lone.session, 7), 0u);
  EXPECT_EQ(watch.ran_ns(SessionId{9}, 7), 0u);
}

TEST(KernelWatch, TheNextPieceBeginsAnew) {
  KernelWatch watch;
  for (uint64_t i = 0; i < 100; ++i) {
    const AtHead each = Head(1, i, i * 150 * kMs);
    Look(&watch, {each}, i * 150 * kMs);
    Look(&watch, {each}, i * 150 * kMs + kPollNs);
    EXPECT_EQ(watch.ran_ns(each.session, i), kPollNs);
  }
}

TEST(KernelWatch, WhoCameLaterOrTogetherIsNotSaidToRun) {
  const AtHead first = Head(1, 1, 0), later = Head(2, 2, 50 * kMs), together = Head(3, 3, 10'000);
  EXPECT_EQ(AfterASecond({first, later}, first), 1000 * kMs);
  EXPECT_EQ(AfterASecond({first, later}, later), 0u);
  EXPECT_EQ(AfterASecond({first, together}, first), 0u);
  EXPECT_EQ(AfterASecond({first, together}, together), 0u);
  // Also behind what is not watched itself.
  EXPECT_EQ(AfterASecond({Head(1, 1, 0, false), later}, later), 0u);
}

TEST(KernelWatch, WhoWaitedIsCountedFromTheEndOfTheOthersOn) {
  const AtHead first = Head(1, 1, 0), later = Head(2, 2, 50 * kMs);
  KernelWatch watch;
  for (uint64_t now = 0; now < 5000 * kMs; now += kPollNs) Look(&watch, {first, later}, now);
  for (uint64_t now = 5000 * kMs; now <= 5300 * kMs; now += kPollNs) Look(&watch, {later}, now);
  EXPECT_EQ(watch.ran_ns(later.session, 2), 300 * kMs);
}

TEST(KernelWatch, ATenantHidesNothingBehindItsOwn) {
  AtHead first = Head(1, 1, 0), other = Head(2, 2, 10'000);
  other.allocation = first.allocation;
  other.level = 5;
  EXPECT_EQ(AfterASecond({first, other}, first), 1000 * kMs);
  EXPECT_EQ(AfterASecond({first, other}, other), 0u);
}

TEST(KernelWatch, WorkOfAHigherLevelGoesFirst) {
  AtHead low = Head(1, 1, 0), high = Head(2, 2, 0);
  high.level = 1;
  KernelWatch watch;
  // In each tenth of a second 70 ms of others' that have ended, and 10 ms of what is there now.
  for (uint64_t now = 0; now <= 1000 * kMs; now += kPollNs) {
    low.higher_ns = now / 100 * 70;
    high.piece = now;
    high.since_ns = now + kPollNs - 10 * kMs;
    Look(&watch, {low, high}, now + kPollNs);
    low.higher_ns += 10 * kMs;
  }
  EXPECT_EQ(watch.ran_ns(low.session, 1), 300 * kMs);
  // There all the time.
  high = Head(2, 2, 50 * kMs, false);
  high.level = 1;
  low.higher_ns = 0;
  EXPECT_EQ(AfterASecond({low, high}, low, 50 * kMs), 0u);
  // A lower one takes nothing away.
  high.level = 0;
  low.level = 1;
  EXPECT_EQ(AfterASecond({low, high}, low, 50 * kMs), 1000 * kMs);
}

TEST(KernelWatch, ASessionThatGoesTakesItsShareOfTheSumAlong) {
  AtHead low = Head(1, 1, 0);
  KernelWatch watch;
  low.higher_ns = 5000 * kMs;
  Look(&watch, {low}, 0);
  low.higher_ns = 10 * kMs;
  Look(&watch, {low}, kPollNs);
  EXPECT_EQ(watch.ran_ns(low.session, 1), kPollNs);
}

}  // namespace
}  // namespace gpuloom::arbiter
