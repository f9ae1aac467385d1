// SPDX-License-Identifier: Apache-2.0
// Streams and events that the driver cannot make without waiting, on the software GPU, which waits like it.
#include "agent/executor/device/object_upkeep.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/held_kernel.h"

namespace gpuloom::executor {
namespace {

using wire::HostPtr;
using wire::StreamId;
using wire::Ticket;

class ObjectUpkeepTest : public HeldKernelTest {
 protected:
  // Neighbours, and a tenant with a program and memory that will want very many objects.
  void AddMany(const char* label) {
    ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
    many_ = scheduler_.AddTenant(label);
    ASSERT_TRUE(LoadProgram(many_.get()));
    its_ = many_->Alloc(4096);
  }

  std::unique_ptr<TestingTenant> many_;
  uint64_t its_ = 0;
};

// NVIDIA's driver waits for all that runs when it needs another block of streams: on this thread, a
// kernel without an end and a tenant with many streams would have stopped the whole domain.
TEST_F(ObjectUpkeepTest, StreamsWithoutEndKeepNobodyWaiting) {
  ASSERT_NO_FATAL_FAILURE(AddMany("many-streams"));
  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  constexpr uint32_t kStreams = 200;
  std::vector<Ticket> launched(kStreams + 1);
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(many_->CreateStream(stream, /*nonblocking=*/true));
    launched[stream] = Scale(many_.get(), stream, its_, 2);
    if (stream % 20 == 0) {
      ASSERT_TRUE(NeighbourGoesOn()) << stream;
    }
  }
  EXPECT_TRUE(many_->WaitDone(1, launched[1]));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(many_->WaitDone(stream, launched[stream])) << stream;
  }
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

// A green context has blocks of streams of its own: that many have been in the whole device helps nobody there.
TEST_F(ObjectUpkeepTest, Malicious_StreamsOfAPartWithoutEndKeepNobodyWaiting) {
  constexpr uint32_t kStreams = 60;
  ASSERT_NO_FATAL_FAILURE(AddMany("many-streams-of-a-part"));
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(many_->CreateStream(stream, /*nonblocking=*/true));
    ASSERT_TRUE(many_->WaitDone(stream, Scale(many_.get(), stream, its_, 2)));
  }
  wire::GreenCreate::Request part{};
  part.context = wire::GreenContextId{1};
  part.part = wire::DevicePartId{1};
  part.split = {0, 1, 1, 0};
  part.picked[0] = 1;
  ASSERT_EQ(many_->Call<wire::GreenCreate>(part), CUDA_SUCCESS);

  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  std::vector<Ticket> launched(2 * kStreams + 1);
  for (uint32_t stream = kStreams + 1; stream <= 2 * kStreams; ++stream) {
    ASSERT_EQ(many_->Call<wire::GreenStreamCreate>({StreamId{stream}, part.context, 0, 0}),
              CUDA_SUCCESS);
    launched[stream] = Scale(many_.get(), stream, its_, 2);
    ASSERT_TRUE(NeighbourGoesOn()) << stream;
  }
  EXPECT_TRUE(many_->WaitDone(kStreams + 1, launched[kStreams + 1]));
  EXPECT_FALSE(many_->reader.Done(StreamId{2 * kStreams}, launched[2 * kStreams]));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  for (uint32_t stream = kStreams + 1; stream <= 2 * kStreams; ++stream) {
    ASSERT_TRUE(many_->WaitDone(stream, launched[stream])) << stream;
  }
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

// The same of events, of which each recorded one that is timed has its own.
TEST_F(ObjectUpkeepTest, EventsWithoutEndKeepNobodyWaiting) {
  ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
  auto many = scheduler_.AddTenant("many-events");
  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  ASSERT_TRUE(many->CreateStream(1, /*nonblocking=*/true));
  Ticket last{};
  constexpr uint32_t kEvents = 6000;
  for (uint32_t event = 1; event <= kEvents; ++event) {
    many->Post<wire::EventCreate>({wire::EventId{event}, /*timing=*/1});
    last = many->Post<wire::EventRecord>({wire::EventId{event}, StreamId{1}});
    if (event % 200 == 0) {
      ASSERT_TRUE(NeighbourGoesOn()) << event;
    }
  }
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  EXPECT_TRUE(many->WaitDone(1, last));
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

// While others have all that there are without waiting, who needs its first ones gets them.
TEST_F(ObjectUpkeepTest, Malicious_StreamsAndEventsWithoutEndLeaveOthersSome) {
  ASSERT_NO_FATAL_FAILURE(AddMany("many"));
  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  for (uint32_t stream = 1; stream <= 100; ++stream) {
    ASSERT_TRUE(many_->CreateStream(stream, /*nonblocking=*/true));
    Scale(many_.get(), stream, its_, 2);
  }
  std::vector<Ticket> recorded;
  for (uint32_t event = 1; event <= 6000; ++event) {
    many_->Post<wire::EventCreate>({wire::EventId{event}, /*timing=*/event % 2});
    recorded.push_back(many_->Post<wire::EventRecord>({wire::EventId{event}, StreamId{1}}));
  }
  ASSERT_TRUE(many_->WaitDone(1, recorded[900]));
  ASSERT_TRUE(many_->Never([&] { return many_->reader.Done(StreamId{1}, recorded[1999]); }))
      << "there are no more";
  ASSERT_TRUE(neighbour_->CreateStream(1, /*nonblocking=*/true));
  EXPECT_TRUE(neighbour_->WaitDone(1, Scale(neighbour_.get(), 1, theirs_, 2)));
  for (const uint32_t timing : {0u, 1u}) {
    const wire::EventId event{1 + timing};
    neighbour_->Post<wire::EventCreate>({event, timing});
    EXPECT_TRUE(neighbour_->WaitDone(1, neighbour_->Post<wire::EventRecord>({event, StreamId{1}})))
        << timing;
  }
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

// The same of events that graphs record: a worker that builds such a graph would wait for the kernel,
// with the lock that everybody's launches take.
TEST_F(ObjectUpkeepTest, Malicious_GraphsThatRecordEventsWithoutEndKeepNobodyWaiting) {
  constexpr uint32_t kGraphs = 6;
  constexpr uint32_t kRecords = 900;
  ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
  auto many = scheduler_.AddTenant("many-records");
  const auto request = [&](uint32_t graph, const TestingGraph& definition) {
    const std::vector<uint8_t> block = definition.Block();
    // A piece of the arena for each.
    const uint64_t address = many->order.host_range_begin + (graph << 20);
    std::memcpy(reinterpret_cast<void*>(address), block.data(), block.size());
    return wire::GraphInstantiate::Request{wire::GraphId{graph}, 0, HostPtr{address}, block.size()};
  };
  TestingGraph plain, records, one;
  for (uint32_t i = 0; i < kRecords; ++i) {
    plain.AddEmpty();
    records.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
  }
  // The driver then has room for as many nodes, so that only events are missing.
  for (uint32_t graph = 1; graph <= 2 * kGraphs; ++graph) {
    ASSERT_EQ(many->Call<wire::GraphInstantiate>(request(graph, plain)), CUDA_SUCCESS);
  }
  for (uint32_t graph = 1; graph <= 2 * kGraphs; ++graph) {
    many->Post<wire::GraphDestroy>({wire::GraphId{graph}});
  }
  many->Post<wire::EventCreate>({wire::EventId{1}, /*timing=*/1});
  neighbour_->Post<wire::EventCreate>({wire::EventId{1}, /*timing=*/1});
  EXPECT_TRUE(many->Never([] { return false; }));

  Gate gate(host_ + 64);
  const Ticket endless = Hold(tenant_.get(), 0, memory_, gate);
  std::vector<Ticket> asked(kGraphs + 1);
  const wire::ReplySlot* answer = nullptr;
  const auto has_answer = [&](uint32_t graph) {
    return (answer = many->reader.FindReply(graph, asked[graph])) != nullptr;
  };
  for (uint32_t graph = 1; graph <= kGraphs; ++graph) {
    const auto slot = static_cast<uint16_t>(graph);
    asked[graph] = many->Post<wire::GraphInstantiate>(request(graph, records), {}, slot);
    ASSERT_TRUE(NeighbourGoesOn()) << graph;
  }
  EXPECT_TRUE(many->Wait([&] { return has_answer(1); })) << "its events are there";
  one.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
  ASSERT_EQ(neighbour_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, HostPtr{0}, 0}, nullptr,
                                                     one.Block()),
            CUDA_SUCCESS);
  const Ticket launch = neighbour_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{0}});
  EXPECT_TRUE(neighbour_->WaitDone(0, launch));
  for (int step = 0; step < 50; ++step) {
    ASSERT_TRUE(NeighbourGoesOn()) << step;
  }
  EXPECT_FALSE(has_answer(kGraphs));
  EXPECT_FALSE(tenant_->reader.Done(StreamId{0}, endless));
  gate.Open();
  for (uint32_t graph = 1; graph <= kGraphs; ++graph) {
    ASSERT_TRUE(many->Wait([&] { return has_answer(graph); })) << graph;
    EXPECT_EQ(answer->result, 0u) << graph;
    EXPECT_TRUE(
        many->WaitDone(0, many->Post<wire::GraphLaunch>({wire::GraphId{graph}, StreamId{0}})))
        << graph;
  }
  EXPECT_TRUE(tenant_->WaitDone(0, endless));
}

}  // namespace
}  // namespace gpuloom::executor
