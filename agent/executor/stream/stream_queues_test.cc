// SPDX-License-Identifier: Apache-2.0
// What of a session's streams may wait in the hardware's queues (agent/executor/device/hardware_queues.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/testing/stream_set_fixture.h"

namespace gpuloom::executor {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using wire::StreamId;
using wire::Ticket;

using StreamQueuesTest = StreamSetTest;

// 16 hardware queues, of which a lone allocation may hold 6.
TEST_F(StreamQueuesTest, WhatWouldWaitAtTheDeviceGoesOnlyWithAHardwareQueue) {
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

TEST_F(StreamQueuesTest, AWaitForAnotherStreamTakesAHardwareQueueToo) {
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

// Of 16 queues a lone allocation may hold 6.
TEST_F(StreamQueuesTest, AGraphWaitsAtTheDeviceInAsManyQueuesAsItHasHeads) {
  const auto* const graph = reinterpret_cast<const Graph*>(1);
  const auto* const other = reinterpret_cast<const Graph*>(2);
  const auto* const widest = reinterpret_cast<const Graph*>(3);
  const auto launch = [this](Stream& stream, const Graph* of, uint32_t queues) {
    needs_[last_ticket_ + 1] = {of, queues};
    return Enqueue(stream, {}, LaunchWork{});
  };
  Stream& a = Add(1, /*blocking=*/false);
  launch(a, graph, 4);
  EXPECT_EQ(queues_.hardware().held(), 0u) << "it waits for nothing";
  launch(a, graph, 4);
  EXPECT_EQ(queues_.hardware().held(), 4u);
  launch(a, graph, 4);
  EXPECT_EQ(queues_.hardware().held(), 4u) << "launches of one graph follow one another";
  launch(a, other, 3);
  EXPECT_EQ(queues_.hardware().held(), 6u);
  EXPECT_EQ(TakeSubmitted().size(), 4u);
  const uint64_t too_wide = launch(a, widest, 3);
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  Complete(a);
  EXPECT_EQ(queues_.hardware().held(), 0u);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, too_wide, {}}));
  // However wide, it goes once there is nothing before it.
  const uint64_t never_behind = launch(a, graph, 1000);
  EXPECT_THAT(TakeSubmitted(), IsEmpty());
  Complete(a);
  EXPECT_TRUE(SubmitWaiting());
  EXPECT_THAT(TakeSubmitted(), ElementsAre(Submitted{1, never_behind, {}}));
  Complete(a);
  EXPECT_EQ(queues_.hardware().held(), 0u);
}

TEST_F(StreamQueuesTest, AGraphHoldsItsQueuesUntilItsLastLaunchIsDone) {
  const auto* const graph = reinterpret_cast<const Graph*>(1);
  Stream& a = Add(1, /*blocking=*/false);
  Enqueue(a, {}, LaunchWork{});
  Mark(a);
  for (int i = 0; i < 2; ++i) {
    needs_[last_ticket_ + 1] = {graph, 3};
    Enqueue(a, {}, LaunchWork{});
    Mark(a);
  }
  for (const uint32_t held : {3u, 3u, 0u}) {
    set_.CompleteOldestMark(a, now_ns_);
    EXPECT_EQ(queues_.hardware().held(), held);
  }
}

TEST_F(StreamQueuesTest, CopiesBehindCopiesHoldNoHardwareQueue) {
  Stream& a = Add(1);
  for (int i = 0; i < 4; ++i) Enqueue(a, {}, CopyWork{});
  Enqueue(a, {}, LaunchWork{});
  EXPECT_EQ(queues_.hardware().held(), 0u);
  Enqueue(a, {}, CopyWork{});
  EXPECT_EQ(queues_.hardware().held(), 1u);
}

TEST_F(StreamQueuesTest, AGateWaitsForOtherSessionsWhateverTheirStreamsAreCalled) {
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

// Some of its waits could go to CUDA before it, where it then would have to follow: but no queue may be held.
TEST_F(StreamQueuesTest, WhatWaitsForManyStreamsGoesWhenAllAreDoneIfNoQueueMayBeHeld) {
  uint32_t others = 0;
  for (int i = 0; i < 8; ++i) queues_.hardware().Take(&others);
  queues_.hardware().Take(&allocation_queues_);
  constexpr uint32_t kStreams = 2 * kMaxWaitsAtOnce;
  for (uint32_t i = 1; i <= kStreams; ++i) Enqueue(Add(i), {}, LaunchWork{});
  TakeSubmitted();
  const uint64_t behind_all = Enqueue(legacy_, {}, LaunchWork{});
  EXPECT_FALSE(SubmitWaiting());
  for (uint32_t i = 1; i <= kStreams; ++i) Complete(*set_.Find(StreamId{i}));
  EXPECT_TRUE(SubmitWaiting());
  const std::vector<Submitted> submitted = TakeSubmitted();
  ASSERT_EQ(submitted.size(), 1u);
  EXPECT_EQ(submitted[0].ticket, behind_all);
  queues_.hardware().Give(&others, 8);
  queues_.hardware().Give(&allocation_queues_, 1);
}

}  // namespace
}  // namespace gpuloom::executor
