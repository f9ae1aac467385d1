// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/stream_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "agent/executor/image/texture_reference.h"
#include "agent/executor/testing/stream_set_fixture.h"

namespace gpuloom::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::StreamId;
using wire::Ticket;

TEST_F(StreamSetTest, CommandsGoAtOnceAndInOrder) {
  Stream& a = Add(1);
  Enqueue(a);
  Enqueue(a);
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 1, {}}, Submitted{1, 2, {}}));
}

TEST_F(StreamSetTest, WhatDrainsGoesOnWhenCudaHasNothingOfIt) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  Enqueue(a);
  a.drains = true;
  Enqueue(a);
  Enqueue(b);
  EXPECT_FALSE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 1, {}}, Submitted{2, 3, {}}));
  Complete(a);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 2, {}}));
}

// Whoever sleeps when nothing went would otherwise never come to those that no slice had time for.
TEST_F(StreamSetTest, SlicesThatAreOverAtOnceComeToAllStreams) {
  constexpr uint32_t kStreams = 250;  // fewer than the driver takes at once
  may_submit_ = false;
  for (uint32_t id = 1; id <= kStreams; ++id) Enqueue(Add(id));
  static uint64_t now_ns;
  const auto submit = [this] {
    Slice slice(1, [] { return ++now_ns; });
    return set_.SubmitWaiting(&slice);
  };
  int calls = 0;
  for (; !set_.CheckedAll() && calls < 100; ++calls) EXPECT_FALSE(submit());
  EXPECT_TRUE(set_.CheckedAll());
  EXPECT_GT(calls, 1);
  set_.CheckAgain();
  EXPECT_FALSE(set_.CheckedAll());

  may_submit_ = true;
  for (calls = 0; !set_.CheckedAll() && calls < 10'000; ++calls) submit();
  EXPECT_EQ(TakeSubmitted().size(), kStreams);
  EXPECT_TRUE(set_.CheckedAll());
}

TEST_F(StreamSetTest, StreamsTogetherDoNotFillTheDriversQueues) {
  constexpr uint32_t kStreams = 2 * DriverRoom::kPlaces / kFirstInFlight;
  for (uint32_t i = 1; i <= kStreams; ++i) Add(i, /*blocking=*/false);
  for (uint32_t i = 1; i <= kStreams; ++i) {
    for (uint32_t k = 0; k < kFirstInFlight; ++k) Enqueue(*set_.Find(wire::StreamId{i}));
  }
  // All that there is room for, and of the streams behind it one each.
  EXPECT_EQ(submitted_.size(), DriverRoom::kPlaces + kStreams / 2);
  Complete(*set_.Find(wire::StreamId{1}));
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(queues_.taken(), DriverRoom::kPlaces);
  for (uint32_t turn = 0; turn < kStreams; ++turn) {
    for (uint32_t i = 1; i <= kStreams; ++i) Complete(*set_.Find(wire::StreamId{i}));
    SubmitWaiting();
  }
  EXPECT_EQ(submitted_.size(), kStreams * kFirstInFlight);
  EXPECT_EQ(queues_.taken(), 0u);
}

TEST_F(StreamSetTest, EverySessionHasAPartOfTheDriversQueues) {
  queues_.SetSharers(4);
  queues_.Take(DriverRoom::kPlaces);  // by the others
  Stream& a = Add(1, /*blocking=*/false);
  Stream& b = Add(2, /*blocking=*/false);
  Stream& c = Add(3, /*blocking=*/false);
  for (uint32_t i = 0; i < kFirstInFlight; ++i) Enqueue(a);
  for (uint32_t i = 0; i < kFirstInFlight; ++i) Enqueue(b);
  EXPECT_EQ(submitted_.size(), DriverRoom::kPlaces / 4);
  // What the others' commands wait for may be this one.
  Enqueue(c);
  Enqueue(c);
  EXPECT_EQ(submitted_.size(), DriverRoom::kPlaces / 4 + 1);
}

TEST_F(StreamSetTest, LegacyWaitsForBlockingStreamsAndTheyForIt) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  Stream& free = Add(3, /*blocking=*/false);
  Enqueue(a);        // 1
  Enqueue(b);        // 2
  Enqueue(free);     // 3
  Enqueue(legacy_);  // 4
  Enqueue(a);        // 5
  Enqueue(free);     // 6
  Enqueue(a);        // 7
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{1, 1, {}}, Submitted{2, 2, {}}, Submitted{3, 3, {}},
                          Submitted{0, 4, {{1, 1}, {2, 2}}}, Submitted{1, 5, {{0, 4}}},
                          Submitted{3, 6, {}}, Submitted{1, 7, {}}));
}

TEST_F(StreamSetTest, LegacyDoesNotWaitTwiceForTheSame) {
  Stream& a = Add(1);
  Enqueue(a);        // 1
  Enqueue(legacy_);  // 2
  Enqueue(legacy_);  // 3
  Enqueue(a);        // 4
  Enqueue(legacy_);  // 5
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{1, 1, {}}, Submitted{0, 2, {{1, 1}}}, Submitted{0, 3, {}},
                          Submitted{1, 4, {{0, 3}}}, Submitted{0, 5, {{1, 4}}}));
}

TEST_F(StreamSetTest, WhatIsDoneIsNotWaitedFor) {
  Stream& a = Add(1);
  Enqueue(a);
  Complete(a);
  Enqueue(legacy_);
  Complete(legacy_);
  Enqueue(a);
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{1, 1, {}}, Submitted{0, 2, {}}, Submitted{1, 3, {}}));
}

TEST_F(StreamSetTest, NoMoreThanTheDriverTakes) {
  Stream& a = Add(1);
  Enqueue(a);
  Complete(a);  // it took no time
  (void)TakeSubmitted();
  for (uint32_t i = 0; i < kMaxInFlight + 10; ++i) Enqueue(a);
  EXPECT_EQ(TakeSubmitted().size(), kMaxInFlight);
  EXPECT_EQ(set_.waiting_commands(), 10u);
  EXPECT_FALSE(SubmitWaiting());
  Complete(a);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(TakeSubmitted().size(), 10u);
  EXPECT_EQ(set_.waiting_commands(), 0u);
  EXPECT_EQ(set_.waiting_bytes(), 0u);
}

TEST_F(StreamSetTest, WhatWaitingLaunchesKeepIsCounted) {
  Stream& a = Add(1);
  room_ = false;
  Enqueue(a, {}, LaunchWork{});
  const size_t plain = set_.waiting_bytes();
  const auto bindings =
      std::make_shared<Bindings>(Bindings{nullptr, std::vector<BindingRef>(100, nullptr)});
  LaunchWork launch{};
  launch.bindings = bindings;
  Enqueue(a, {}, std::move(launch));
  EXPECT_GT(set_.waiting_bytes(), 2 * plain + 100 * sizeof(Binding));
  LaunchExWork asking{};
  asking.bindings = bindings;
  Enqueue(a, {}, std::move(asking));
  EXPECT_GT(set_.waiting_bytes(), 3 * plain + 200 * sizeof(Binding));
  room_ = true;
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(set_.waiting_bytes(), 0u);
}

// One for each node that records an event, and a launch is 32 bytes in the ring.
TEST_F(StreamSetTest, Malicious_PointsOfWaitingGraphsAreCounted) {
  Stream& a = Add(1);
  room_ = false;
  GraphWork graph{};
  for (uint64_t i = 0; i < 1000; ++i) {
    graph.points.push_back(std::make_shared<Point>(nullptr, a.id, Ticket{i}, false));
  }
  Enqueue(a, {}, std::move(graph));
  EXPECT_GT(set_.waiting_bytes(), 1000 * sizeof(Point));
  Enqueue(a, {}, RecordWork{std::make_shared<Point>(nullptr, a.id, Ticket{1}, false)});
  EXPECT_GT(set_.waiting_bytes(), 1001 * sizeof(Point) + 2 * sizeof(StreamCommand));
  room_ = true;
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(set_.waiting_bytes(), 0u);
}

TEST_F(StreamSetTest, OfWhatTakesLongNoMoreGoesThanTheDeviceNeeds) {
  Stream& a = Add(1);
  for (uint32_t i = 0; i < kMaxInFlight; ++i) Enqueue(a);
  EXPECT_EQ(TakeSubmitted().size(), kFirstInFlight) << "nothing is known of it yet";
  Mark(a);
  now_ns_ += kFirstInFlight * uint64_t{50'000'000};
  Complete(a);
  SubmitWaiting();
  EXPECT_EQ(TakeSubmitted().size(), kLeastInFlight);
  // It becomes quicker, and so many go as last kAheadNs.
  for (int i = 0; i < 20; ++i) {
    Mark(a);
    now_ns_ += a.in_flight * uint64_t{200'000};
    Complete(a);
    SubmitWaiting();
  }
  EXPECT_NEAR(a.max_in_flight, kAheadNs / 200'000, 2);
  while (a.in_flight != 0) {
    Complete(a);
    SubmitWaiting();
  }
  EXPECT_EQ(set_.waiting_commands(), 0u);
}

TEST_F(StreamSetTest, DependantsWaitUntilWhatTheyDependOnHasGone) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  for (uint32_t i = 0; i < kFirstInFlight; ++i) Enqueue(a);
  const uint64_t behind = Enqueue(a);
  (void)TakeSubmitted();
  const uint64_t dependent = Enqueue(b, {{a.id, Ticket{behind}, nullptr}});
  const uint64_t later = Enqueue(b);
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  Complete(a);
  SubmitWaiting();
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{1, behind, {}}, Submitted{2, dependent, {{1, behind}}},
                          Submitted{2, later, {}}));
}

TEST_F(StreamSetTest, HoldKeepsEverythingBack) {
  Stream& a = Add(1);
  hold_ = true;
  Enqueue(a);
  EXPECT_FALSE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  EXPECT_FALSE(set_.AtDevice());
  hold_ = false;
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(TakeSubmitted().size(), 1u);
  EXPECT_TRUE(set_.AtDevice());
}

TEST_F(StreamSetTest, WhileItIsOthersTurnNothingGoesAndLaunchesGather) {
  Stream& a = Add(1, /*blocking=*/false);
  Stream& b = Add(2, /*blocking=*/false);
  may_submit_ = false;
  Enqueue(a);
  const auto collect = [&] {
    set_.Collect(b, Ticket{++last_ticket_}, ChunkNode{}, {}, nullptr);
    set_.Flush(true);
  };
  collect();
  collect();
  EXPECT_FALSE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  int commands = 0;
  uint32_t launches = 0;
  set_.ForEachReady([&](const Stream&, const StreamCommand&) { ++commands; },
                    [&](const Stream&, const Chunk& chunk) { launches += chunk.size(); });
  EXPECT_EQ(commands, 1);
  EXPECT_EQ(launches, 2u);
  may_submit_ = true;
  EXPECT_TRUE(SubmitWaiting());
  set_.Flush(true);
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 1, {}}, Submitted{2, 3, {}}));
}

TEST_F(StreamSetTest, Malicious_OfManyReadyStreamsSomeAreLookedAtAtATime) {
  constexpr uint32_t kStreams = 2 * StreamSet::kMaxScanned;
  may_submit_ = false;
  for (uint32_t i = 1; i <= kStreams; ++i) Enqueue(Add(i, /*blocking=*/false));
  std::set<uint64_t> seen;
  for (int round = 1; round <= 2; ++round) {
    set_.ForEachReady(
        [&](const Stream&, const StreamCommand& command) {
          seen.insert(static_cast<uint64_t>(command.ticket));
        },
        [](const Stream&, const Chunk&) {});
    EXPECT_EQ(seen.size(), round * StreamSet::kMaxScanned);
  }
}

TEST_F(StreamSetTest, NoMoreLaunchesGatherThanMayGoTogether) {
  Stream& a = Add(1, /*blocking=*/false);
  a.max_chunk = 2;
  for (int i = 0; i < 5; ++i) set_.Collect(a, Ticket{++last_ticket_}, ChunkNode{}, {}, nullptr);
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 2, {}}, Submitted{1, 4, {}}));
}

TEST_F(StreamSetTest, WaitsForRoom) {
  Stream& a = Add(1);
  room_ = false;
  Enqueue(a);
  Enqueue(a);
  EXPECT_FALSE(SubmitWaiting());
  room_ = true;
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, 1, {}}, Submitted{1, 2, {}}));
}

TEST_F(StreamSetTest, PayloadIsKeptWhileItWaits) {
  Stream& a = Add(1);
  hold_ = true;
  std::vector<uint8_t> ring = {1, 2, 3};
  StreamCommand command;
  command.ticket = Ticket{1};
  command.payload = ring;
  set_.Enqueue(a, std::move(command));
  ring = {9, 9, 9};
  EXPECT_THAT(a.waiting.front().payload, ElementsAre(1, 2, 3));
}

TEST_F(StreamSetTest, OldestUnfinishedIsExactToTheMark) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  EXPECT_EQ(set_.OldestUnfinished(), UINT64_MAX);
  Enqueue(a);  // 1
  Mark(a);
  Enqueue(b);  // 2
  Enqueue(a);  // 3
  EXPECT_EQ(set_.OldestUnfinished(), 1u);
  set_.CompleteOldestMark(a, now_ns_);
  EXPECT_EQ(set_.OldestUnfinished(), 2u);
  Complete(b);
  EXPECT_EQ(set_.OldestUnfinished(), 3u);
  Complete(a);
  set_.TakeEnded();
  EXPECT_EQ(set_.OldestUnfinished(), UINT64_MAX);
}

TEST_F(StreamSetTest, OldestAtDeviceIsOfWhatWasSubmitted) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  EXPECT_EQ(set_.OldestAtDevice(), UINT64_MAX);
  hold_ = true;
  Enqueue(a);  // 1
  EXPECT_EQ(set_.OldestAtDevice(), UINT64_MAX);
  EXPECT_EQ(set_.OldestUnfinished(), 1u);
  hold_ = false;
  Enqueue(b);  // 2
  EXPECT_EQ(set_.OldestAtDevice(), 2u);
  SubmitWaiting();
  EXPECT_EQ(set_.OldestAtDevice(), 1u);
  Complete(a);
  EXPECT_EQ(set_.OldestAtDevice(), 2u);
}

TEST_F(StreamSetTest, DestroyedStreamGoesWhenItIsDone) {
  Stream& a = Add(1);
  Enqueue(a);
  a.destroyed = true;
  EXPECT_EQ(set_.Find(StreamId{1}), nullptr);
  EXPECT_EQ(set_.Add(StreamId{1}, true, 0, Ticket{1}), nullptr) << "the id is not free yet";
  EXPECT_THAT(set_.TakeEnded(), IsEmpty());
  Complete(a);
  EXPECT_EQ(set_.TakeEnded().size(), 1u);
  EXPECT_THAT(set_.TakeUnmarked(), IsEmpty()) << "marked by what came after its last command";
  EXPECT_NE(set_.Add(StreamId{1}, true, 0, Ticket{1}), nullptr);
}

TEST_F(StreamSetTest, DependencyOnAnEarlierStreamOfTheSameIdIsDone) {
  Stream& a = Add(1);
  Stream& b = Add(2);
  const uint64_t old = Enqueue(a);
  a.destroyed = true;
  Complete(a);
  set_.TakeEnded();
  Add(1);
  Enqueue(b, {{StreamId{1}, Ticket{old}, nullptr}});
  EXPECT_EQ(TakeSubmitted().size(), 2u);
}

TEST_F(StreamSetTest, DropForgetsWhatHasNotGone) {
  Stream& a = Add(1);
  Enqueue(a);
  hold_ = true;
  Enqueue(a);
  EXPECT_TRUE(set_.DropWaiting());
  hold_ = false;
  EXPECT_FALSE(SubmitWaiting());
  Complete(a);
  set_.TakeEnded();
  EXPECT_TRUE(set_.Idle());
}

TEST_F(StreamSetTest, IdsOutOfRangeAreRefused) {
  EXPECT_EQ(set_.Add(StreamId{wire::kMaxStreams}, true, 0, Ticket{0}), nullptr);
  EXPECT_EQ(set_.Find(StreamId{wire::kMaxStreams}), nullptr);
  EXPECT_EQ(set_.Find(StreamId{77}), nullptr);
}

TEST_F(StreamSetTest, WaitsForManyAreToldPieceByPieceBeforeTheCommand) {
  constexpr uint32_t kStreams = 3 * kMaxWaitsAtOnce + 5;
  for (uint32_t id = 1; id <= kStreams; ++id) Enqueue(Add(id));
  TakeSubmitted();
  const uint64_t last = Enqueue(legacy_);
  EXPECT_THAT(TakeSubmitted(), IsEmpty()) << "it would take long";
  Slice shortest(0);
  for (int round = 0; round < 10 && submitted_.empty(); ++round) {
    set_.SubmitWaiting(&shortest);
    EXPECT_LE(waits_[0].size(), (round + 1) * 2 * kMaxWaitsAtOnce);
  }
  ASSERT_EQ(submitted_.size(), 1u);
  EXPECT_EQ(submitted_[0].ticket, last);
  std::set<std::pair<uint32_t, uint64_t>> waited(submitted_[0].after.begin(),
                                                 submitted_[0].after.end());
  EXPECT_EQ(waited.size(), kStreams) << "for each of them";
  EXPECT_EQ(set_.waiting_bytes(), 0u);
}

TEST_F(StreamSetTest, OnlySoManyStreamsAreAtTheDeviceAtATime) {
  for (uint32_t id = 1; id <= kMaxStreamsAtDevice + 3; ++id) Enqueue(Add(id, /*blocking=*/false));
  EXPECT_EQ(TakeSubmitted().size(), kMaxStreamsAtDevice);
  EXPECT_FALSE(SubmitWaiting());
  Stream& first = *set_.Find(StreamId{1});
  Complete(first);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_EQ(TakeSubmitted().size(), 1u);
}

TEST_F(StreamSetTest, WaitingStreamsGoOnInTurnWhenTheSliceEnds) {
  hold_ = true;
  Stream& a = Add(1, /*blocking=*/false);
  Stream& b = Add(2, /*blocking=*/false);
  for (int i = 0; i < 4; ++i) Enqueue(a);
  for (int i = 0; i < 4; ++i) Enqueue(b);
  hold_ = false;
  std::set<uint32_t> served;
  for (int round = 0; round < 2; ++round) {
    Slice shortest(0);
    EXPECT_TRUE(set_.SubmitWaiting(&shortest));
    const auto submitted = TakeSubmitted();
    EXPECT_LE(submitted.size(), 2u);
    for (const Submitted& one : submitted) served.insert(one.stream);
  }
  EXPECT_EQ(served.size(), 2u);
}

TEST_F(StreamSetTest, WhatWaitsIsDroppedInPieces) {
  hold_ = true;
  Stream& a = Add(1);
  for (int i = 0; i < 1000; ++i) Enqueue(a);
  int pieces = 1;
  while (!set_.DropWaiting()) ++pieces;
  EXPECT_GT(pieces, 5);
  EXPECT_EQ(set_.waiting_commands(), 0u);
  Complete(a);
  EXPECT_TRUE(a.Idle());
}

}  // namespace
}  // namespace gpuloom::executor
