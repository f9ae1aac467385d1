// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/work_meter.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

namespace gpuloom::arbiter {
namespace {

constexpr SessionId kA{0};
constexpr SessionId kB{1};
constexpr SessionId kC{2};
constexpr AllocationId kOfA{0};
constexpr AllocationId kOfB{1};
constexpr uint64_t kMs = 1'000'000;

TEST(WorkMeter, WhoIsAloneIsChargedWhatPasses) {
  WorkMeter meter;
  const auto piece = meter.Begin(kA, kOfA, 1, 100'000);
  meter.Settle(110'000);
  EXPECT_EQ(meter.Take(kA), 0u) << "another may come before the device has begun it";
  meter.Settle(140'000);
  EXPECT_EQ(meter.Take(kA), 40'000u);
  const auto took = meter.End(piece, 170'000);
  EXPECT_EQ(took.least_ns, 70'000u);
  EXPECT_EQ(took.most_ns, 70'000u);
  meter.Settle(200'000);
  EXPECT_EQ(meter.Take(kA), 30'000u);
  EXPECT_EQ(meter.Take(kA), 0u);
  EXPECT_TRUE(meter.idle());
}

// A kernel of 50 µs that waits behind one of 5 ms is charged 50 µs.
TEST(WorkMeter, WaitingBehindOthersIsNotCharged) {
  WorkMeter meter;
  const auto of_b = meter.Begin(kB, kOfB, 5 * kMs, 0);
  const auto of_a = meter.Begin(kA, kOfA, 50'000, 10'000);
  meter.End(of_b, 5 * kMs);
  const auto took = meter.End(of_a, 5 * kMs + 50'000);
  EXPECT_EQ(took.least_ns, 50'000u);
  EXPECT_EQ(took.most_ns, 5 * kMs + 40'000);
  meter.Settle(10 * kMs);
  EXPECT_EQ(meter.Take(kA), 50'000u);
  EXPECT_EQ(meter.Take(kB), 5 * kMs);
}

// Narrow kernels that really run beside one another divide the time.
TEST(WorkMeter, WorkThatRunsBesideOthersPaysHalf) {
  WorkMeter meter;
  const auto of_b = meter.Begin(kB, kOfB, kMs, 0);
  const auto of_a = meter.Begin(kA, kOfA, kMs, 0);
  meter.End(of_b, kMs);
  meter.End(of_a, kMs + 10);
  meter.Settle(2 * kMs);
  EXPECT_EQ(meter.Take(kB), kMs / 2 + 5);
  EXPECT_EQ(meter.Take(kA), kMs / 2 + 5);
}

// A program's first kernels, and those whose shapes are always new. Nobody knows how long they take; that they waited is known.
TEST(WorkMeter, AGuessMakesNobodyPayForOthersWork) {
  WorkMeter meter;
  for (uint64_t i = 0; i < 10; ++i) {
    const auto of_b = meter.Begin(kB, kOfB, 200'000, i * 400'000);
    const auto of_a = meter.Begin(kA, kOfA, kMs, i * 400'000 + 10, /*alone_ns=*/0);
    meter.End(of_b, i * 400'000 + 200'000);
    meter.End(of_a, i * 400'000 + 400'000);
  }
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), 2 * kMs);
  EXPECT_EQ(meter.Take(kB), 2 * kMs);
}

// Whoever makes its kernels look short is excused only for what others had at the device before.
TEST(WorkMeter, Malicious_AWrongPredictionExcusesOnlyForWhatWasThereBefore) {
  WorkMeter meter;
  const auto of_b = meter.Begin(kB, kOfB, 100'000, 0);
  const auto of_a = meter.Begin(kA, kOfA, 1'000, 1);
  meter.End(of_b, 100'000);
  const auto again = meter.Begin(kB, kOfB, 100'000, 100'000);  // behind it now
  meter.End(of_a, 10 * kMs);
  meter.End(again, 10 * kMs + 100'000);
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), 10 * kMs - 100'000);
  EXPECT_EQ(meter.Take(kB), 200'000u);
}

TEST(WorkMeter, AnEndlessKernelIsChargedWhileItRunsWhateverWaitsBehindIt) {
  WorkMeter meter;
  meter.Begin(kA, kOfA, kMs, 0);
  meter.Begin(kB, kOfB, kMs, 10);
  uint64_t charged_ns = 0;
  for (uint64_t now = kMs; now <= 100 * kMs; now += kMs) {
    meter.Settle(now);
    charged_ns += meter.Take(kA);
  }
  EXPECT_GE(charged_ns, 100 * kMs - WorkMeter::kLatestNs);
  EXPECT_EQ(meter.Take(kB), 0u);
}

TEST(WorkMeter, MoreSessionsOfAnAllocationPayOnce) {
  WorkMeter meter;
  const auto a = meter.Begin(kA, kOfA, kMs, 0);
  const auto c = meter.Begin(kC, kOfA, kMs, 0);
  const auto b = meter.Begin(kB, kOfB, kMs, 0);
  meter.End(a, kMs);
  meter.End(c, kMs);
  meter.End(b, kMs);
  meter.Settle(2 * kMs);
  EXPECT_EQ(meter.Take(kB), kMs / 2);
  EXPECT_EQ(meter.Take(kA), kMs / 4);
  EXPECT_EQ(meter.Take(kC), kMs / 4);
}

// A short kernel at the head of its stream, and a long one of another tenant that comes right behind it and is begun first.
TEST(WorkMeter, OfTwoThatCameTogetherTheOneThatEndsFirstWasFirst) {
  for (const bool settles : {false, true}) {
    WorkMeter meter;
    const auto of_a = meter.Begin(kA, kOfA, 50'000, 0);
    const auto of_b = meter.Begin(kB, kOfB, 5 * kMs, 3'000);
    for (uint64_t now = kMs; settles && now < 5 * kMs; now += kMs) meter.Settle(now);
    WorkMeter::Seen seen = {of_b, 5 * kMs, UINT64_MAX};
    meter.End({&seen, 1}, settles ? 4 * kMs : 1'000);
    const auto took = meter.End(of_a, 5 * kMs + 50'000);
    EXPECT_EQ(took.least_ns, 50'000u);
    meter.Settle(10 * kMs);
    EXPECT_EQ(meter.Take(kA), 50'000u);
    EXPECT_EQ(meter.Take(kB), 5 * kMs);
  }
}

// The loop has not looked for 10 ms. What ended meanwhile ended one after the other, and then the device was idle.
TEST(WorkMeter, WhatIsSeenLateIsChargedItsPart) {
  WorkMeter meter;
  std::vector<WorkMeter::Seen> seen;
  for (const auto& [session, allocation] : {std::pair{kA, kOfA}, {kB, kOfB}, {kA, kOfA}}) {
    seen.push_back({meter.Begin(session, allocation, 200'000, 0), 10 * kMs, UINT64_MAX});
  }
  meter.End(seen, /*looked_ns=*/1'000);
  for (const WorkMeter::Seen& it : seen) {
    EXPECT_LE(it.took.least_ns, 200'000u);
    EXPECT_EQ(it.took.most_ns, 10 * kMs);
    // Of the first it is known that it ran until then.
    EXPECT_EQ(it.took.surely_ns(), &it == seen.data() ? 1'000 : 0);
  }
  EXPECT_TRUE(meter.idle());
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), 400'000u);
  EXPECT_EQ(meter.Take(kB), 200'000u);
}

TEST(WorkMeter, WhatIsSeenLateIsChargedAllOfItIfTheDeviceHadMore) {
  for (const bool same_stream : {false, true}) {
    WorkMeter meter;
    std::vector<WorkMeter::Seen> seen = {
        {meter.Begin(kA, kOfA, 300'000, 0), 10 * kMs, UINT64_MAX},
        {meter.Begin(kB, kOfB, 100'000, 0), 10 * kMs, same_stream ? 350'000 : UINT64_MAX}};
    if (!same_stream) meter.Begin(kC, kOfB, 100'000, 350'000);
    meter.End(seen, 1'000);
    meter.Settle(40 * kMs);
    EXPECT_NEAR(static_cast<double>(meter.Take(kA)), 7.5 * kMs, 10'000);
    EXPECT_NEAR(static_cast<double>(meter.Take(kB)), 2.5 * kMs, 10'000);
  }
}

TEST(WorkMeter, WhatIsSeenSoonMayHaveEndedSinceTheLastLook) {
  WorkMeter meter;
  WorkMeter::Seen seen = {meter.Begin(kA, kOfA, 200'000, 0), 205'000, UINT64_MAX};
  meter.End({&seen, 1}, /*looked_ns=*/195'000);
  EXPECT_EQ(seen.took.least_ns, 205'000u);
  EXPECT_EQ(seen.took.surely_ns(), 195'000u);
}

// What came when the device must have been idle has its own time.
TEST(WorkMeter, WhatCameBehindWhatIsSeenLateHasItsOwnTime) {
  WorkMeter meter;
  std::vector<WorkMeter::Seen> seen = {{meter.Begin(kA, kOfA, 200'000, 0), 10 * kMs, UINT64_MAX}};
  const auto behind = meter.Begin(kB, kOfB, 200'000, 9 * kMs);
  meter.End(seen, 1'000);
  meter.End(behind, 10 * kMs + 50'000);
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), 200'000u);
  EXPECT_EQ(meter.Take(kB), kMs + 50'000);
}

// Predictions that add up to more than the time are cut, and what has run already counts.
TEST(WorkMeter, TooLittleTimeIsDividedByPredictions) {
  WorkMeter meter;
  std::vector<WorkMeter::Seen> seen = {{meter.Begin(kA, kOfA, 2 * kMs, 0), 2 * kMs, UINT64_MAX},
                                       {meter.Begin(kB, kOfB, kMs, 0), 2 * kMs, UINT64_MAX}};
  meter.End(seen, kMs);  // a half of the first, then both in the time of one
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), kMs + kMs / 2);
  EXPECT_EQ(meter.Take(kB), kMs / 2);
}

// Nobody knows how long it takes; and what is seen soon is charged as it is seen.
TEST(WorkMeter, WithoutPredictionsWhatIsSeenCounts) {
  for (const uint64_t predicted_ns : {0, 5'000}) {
    WorkMeter meter;
    const uint64_t at_ns = predicted_ns == 0 ? 10 * kMs : WorkMeter::kSeldomNs;
    std::vector<WorkMeter::Seen> seen = {
        {meter.Begin(kA, kOfA, predicted_ns, 0), at_ns, UINT64_MAX}};
    meter.End(seen, 1'000);
    EXPECT_EQ(seen[0].took.least_ns, at_ns);
    meter.Settle(20 * kMs);
    EXPECT_EQ(meter.Take(kA), at_ns);
  }
}

// Who makes a kernel look short, and has it seen late, takes nothing from who waits behind it.
TEST(WorkMeter, Malicious_AWrongPredictionBehindALongLookIsNobodyElsesTime) {
  WorkMeter meter;
  std::vector<WorkMeter::Seen> seen = {{meter.Begin(kA, kOfA, 10'000, 0), 10 * kMs, UINT64_MAX}};
  const auto waits = meter.Begin(kB, kOfB, 100'000, 5'000);
  meter.End(seen, 1'000);
  meter.End(waits, 10 * kMs + 100'000);
  meter.Settle(20 * kMs);
  EXPECT_EQ(meter.Take(kA), 10 * kMs);
  EXPECT_EQ(meter.Take(kB), 100'000u);
}

// Whatever the predictions: all that was charged is the time in which there was work.
TEST(WorkMeter, ChargesAddUpToTheTimeWithWork) {
  uint64_t random = 88172645463325252;
  const auto next = [&](uint64_t below) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    return random % below;
  };
  WorkMeter meter;
  struct Stream {
    SessionId session;
    WorkMeter::Piece piece = 0;
    bool busy = false;
  };
  Stream streams[6] = {{kA}, {kA}, {kB}, {kB}, {kC}, {kC}};
  uint64_t now = 0;
  uint64_t with_work_ns = 0;
  int busy = 0;
  uint64_t charged_ns = 0;
  for (int i = 0; i < 20'000; ++i) {
    const uint64_t step = next(100'000);
    with_work_ns += busy != 0 ? step : 0;
    now += step;
    Stream& stream = streams[next(6)];
    if (stream.busy) {
      meter.End(stream.piece, now);
    } else {
      stream.piece =
          meter.Begin(stream.session, stream.session == kB ? kOfB : kOfA, next(300'000), now);
    }
    stream.busy = !stream.busy;
    busy += stream.busy ? 1 : -1;
    if (next(3) == 0) meter.Settle(now);
    for (const SessionId session : {kA, kB, kC}) charged_ns += meter.Take(session);
  }
  for (Stream& stream : streams) {
    if (stream.busy) meter.End(stream.piece, now);
  }
  meter.Settle(now);
  for (const SessionId session : {kA, kB, kC}) charged_ns += meter.Take(session);
  // Nanoseconds that could not be divided wait for the next moment.
  EXPECT_NEAR(static_cast<double>(charged_ns), static_cast<double>(with_work_ns), 10);
  EXPECT_EQ(meter.busy_ns(), with_work_ns);
}

}  // namespace
}  // namespace gpuloom::arbiter
