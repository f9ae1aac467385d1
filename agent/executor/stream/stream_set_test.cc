// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/stream_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "agent/executor/image/texture_reference.h"
#include "agent/executor/session/slice.h"

namespace gpuloom::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::StreamId;
using wire::Ticket;

struct Submitted {
  uint32_t stream;
  uint64_t ticket;
  std::vector<std::pair<uint32_t, uint64_t>> after;
  bool operator==(const Submitted&) const = default;
};

class StreamSetTest : public ::testing::Test, private StreamSink {
 protected:
  Stream& Add(uint32_t id, bool blocking = true) {
    return *set_.Add(StreamId{id}, blocking, 0, Ticket{last_ticket_});
  }

  uint64_t Enqueue(Stream& stream, std::vector<Dependency> dependencies = {}, Work work = {}) {
    StreamCommand command;
    command.work = std::move(work);
    command.ticket = Ticket{++last_ticket_};
    command.dependencies = std::move(dependencies);
    set_.Enqueue(stream, std::move(command));
    return last_ticket_;
  }

  void Mark(Stream& stream) {
    set_.AddMark(stream,
                 std::make_shared<Point>(nullptr, stream.id, Ticket{stream.submitted}, false),
                 now_ns_);
  }
  void Complete(Stream& stream) {
    if (stream.unmarked != 0) Mark(stream);
    while (!stream.marks.empty()) set_.CompleteOldestMark(stream, now_ns_);
  }

  bool SubmitWaiting() {
    Slice slice(UINT64_MAX);
    return set_.SubmitWaiting(&slice);
  }

  std::vector<Submitted> TakeSubmitted() { return std::move(submitted_); }

  std::vector<Submitted> submitted_;
  uint64_t last_ticket_ = 0;
  uint64_t now_ns_ = 1'000'000;
  bool hold_ = false;
  bool room_ = true;
  bool may_submit_ = true;
  DriverRoom queues_;
  uint32_t allocation_queues_ = 0;
  StreamSet set_{this, &hold_, &queues_, &allocation_queues_};
  std::map<uint32_t, std::vector<std::pair<uint32_t, uint64_t>>> waits_;  // told before the command
  Stream& legacy_ = Add(0);

 private:
  bool HasRoom(const Stream&, const StreamCommand&) const override { return room_; }
  bool MaySubmit(const Stream&, const StreamCommand&) const override { return may_submit_; }
  bool MaySubmit(const Stream&, const Chunk&) const override { return may_submit_; }

  void WaitFor(Stream& stream, const Dependency& dependency) override {
    waits_[static_cast<uint32_t>(stream.id)].emplace_back(static_cast<uint32_t>(dependency.stream),
                                                          static_cast<uint64_t>(dependency.ticket));
  }

  void Submit(Stream& stream, StreamCommand& command) override {
    Submitted one{static_cast<uint32_t>(stream.id), static_cast<uint64_t>(command.ticket),
                  std::move(waits_[static_cast<uint32_t>(stream.id)])};
    waits_.erase(static_cast<uint32_t>(stream.id));
    for (const Dependency& d : command.dependencies) {
      one.after.emplace_back(static_cast<uint32_t>(d.stream), static_cast<uint64_t>(d.ticket));
    }
    submitted_.push_back(std::move(one));
  }
};

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

// 16 hardware queues, of which a lone allocation may hold 6.
TEST_F(StreamSetTest, WhatWouldWaitAtTheDeviceGoesOnlyWithAHardwareQueue) {
  constexpr uint32_t kHeld = 6;
  for (uint32_t i = 1; i <= kHeld; ++i) {
    Stream& stream = Add(i, /*blocking=*/false);
    Enqueue(stream, {}, LaunchWork{});
    Enqueue(stream, {}, LaunchWork{});
  }
  EXPECT_EQ(queues_.hardware().held(), kHeld);
  TakeSubmitted();
  Stream& next = Add(kHeld + 1, /*blocking=*/false);
  Enqueue(next, {}, LaunchWork{});
  const uint64_t behind = Enqueue(next, {}, LaunchWork{});
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{kHeld + 1, behind - 1, {}}));
  EXPECT_FALSE(SubmitWaiting());
  // An event holds none, and goes in its order.
  const uint64_t record = Enqueue(next, {}, RecordWork{});
  Complete(next);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{kHeld + 1, behind, {}}, Submitted{kHeld + 1, record, {}}));
  Complete(*set_.Find(StreamId{1}));
  EXPECT_EQ(queues_.hardware().held(), kHeld - 1);
  const uint64_t third = Enqueue(next, {}, LaunchWork{});
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{kHeld + 1, third, {}}));
  EXPECT_EQ(queues_.hardware().held(), kHeld);
  for (uint32_t i = 2; i <= kHeld + 1; ++i) Complete(*set_.Find(StreamId{i}));
  EXPECT_EQ(queues_.hardware().held(), 0u);
}

TEST_F(StreamSetTest, AWaitForAnotherStreamTakesAHardwareQueueToo) {
  uint32_t others = 0;
  for (int i = 0; i < 8; ++i) queues_.hardware().Take(&others);
  queues_.hardware().Take(&allocation_queues_);
  Stream& a = Add(1, /*blocking=*/false);
  Stream& b = Add(2, /*blocking=*/false);
  const uint64_t first = Enqueue(a, {}, LaunchWork{});
  // The wait by itself holds none; what comes behind it does.
  const uint64_t wait = Enqueue(b, {{a.id, Ticket{first}, nullptr}});
  const uint64_t launch = Enqueue(b, {}, LaunchWork{});
  EXPECT_THAT(TakeSubmitted(),
              ElementsAre(Submitted{1, first, {}}, Submitted{2, wait, {{1, first}}}));
  Complete(a);
  EXPECT_FALSE(SubmitWaiting()) << "not before it is known that the wait is over";
  Complete(b);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{2, launch, {}}));
  queues_.hardware().Give(&others, 8);
  queues_.hardware().Give(&allocation_queues_, 1);
}

TEST_F(StreamSetTest, CopiesBehindCopiesHoldNoHardwareQueue) {
  Stream& a = Add(1);
  for (int i = 0; i < 4; ++i) Enqueue(a, {}, CopyWork{});
  Enqueue(a, {}, LaunchWork{});
  EXPECT_EQ(queues_.hardware().held(), 0u);
  Enqueue(a, {}, CopyWork{});
  EXPECT_EQ(queues_.hardware().held(), 1u);
}

TEST_F(StreamSetTest, AGateWaitsForOtherSessionsWhateverTheirStreamsAreCalled) {
  Stream& a = Add(1);
  const auto theirs = std::make_shared<Point>(nullptr, StreamId{7}, Ticket{1}, false);
  StreamCommand command;
  command.ticket = Ticket{++last_ticket_};
  command.dependencies = {{StreamId{7}, Ticket{1}, theirs, /*foreign=*/true}};
  command.gate = std::make_shared<Gate>();
  command.gate->try_open = [](Gate* gate) { gate->open = true; };
  theirs->event = reinterpret_cast<CUevent>(1);
  set_.Enqueue(a, std::move(command));
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  theirs->done = true;
  EXPECT_TRUE(SubmitWaiting());
  theirs->event = nullptr;
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
  set_.ForEachReady([&](const StreamCommand&) { ++commands; },
                    [&](const Chunk& chunk) { launches += chunk.size(); });
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
        [&](const StreamCommand& command) { seen.insert(static_cast<uint64_t>(command.ticket)); },
        [](const Chunk&) {});
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
