// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/hardware_queues.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>

#include "agent/executor/device/timing_events.h"
#include "agent/executor/testing/graph.h"
#include "agent/executor/testing/held_kernel.h"

namespace gpuloom::executor {
namespace {

using wire::StreamId;
using wire::Ticket;

uint32_t TakeAll(HardwareQueues* queues, uint32_t* mine) {
  uint32_t taken = 0;
  for (; queues->MayTake(*mine); ++taken) queues->Take(mine);
  return taken;
}

TEST(HardwareQueues, ALoneAllocationLeavesSomeToWhoComesNext) {
  HardwareQueues queues(16);
  uint32_t first = 0;
  uint32_t second = 0;
  EXPECT_EQ(TakeAll(&queues, &first), 6u);
  EXPECT_EQ(TakeAll(&queues, &second), 2u);
  queues.Give(&first, 6);
  EXPECT_EQ(TakeAll(&queues, &second), 4u);
  EXPECT_EQ(TakeAll(&queues, &first), 2u) << "its part is half, and two are left";
  queues.Give(&first, 2);
  queues.Give(&second, 6);
  EXPECT_EQ(queues.held(), 0u);
}

TEST(HardwareQueues, SeveralAreTakenTogetherOrNotAtAll) {
  HardwareQueues queues(16);
  uint32_t first = 0;
  uint32_t second = 0;
  EXPECT_FALSE(queues.MayTake(first, 7));
  EXPECT_TRUE(queues.MayTake(first, 6));
  for (int i = 0; i < 4; ++i) queues.Take(&first);
  EXPECT_TRUE(queues.MayTake(second, 4)) << "its part";
  EXPECT_FALSE(queues.MayTake(second, 5));
  for (int i = 0; i < 3; ++i) queues.Take(&second);
  EXPECT_TRUE(queues.MayTake(second));
  EXPECT_FALSE(queues.MayTake(second, 2));
}

TEST(HardwareQueues, EveryAllocationHasOne) {
  for (const uint32_t count : {1u, 8u, 10u, 16u, 32u}) {
    HardwareQueues queues(count);
    std::array<uint32_t, 40> holders{};
    for (uint32_t& holder : holders) EXPECT_GE(TakeAll(&queues, &holder), 1u);
    EXPECT_GE(queues.held(), holders.size());
    // Those that came first have no more than that once the others are there.
    for (uint32_t& holder : holders) queues.Give(&holder, holder);
    for (uint32_t& holder : holders) queues.Take(&holder);
    for (uint32_t& holder : holders) EXPECT_FALSE(queues.MayTake(holder));
  }
}

TEST(HardwareQueues, NobodyIsToldEarlyAtOthersExpense) {
  HardwareQueues queues(16);
  std::array<uint32_t, 9> holders{};
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(queues.MaySpare(holders[i]));
    queues.Take(&holders[i]);
  }
  EXPECT_TRUE(queues.MayTake(holders[8]));
  EXPECT_FALSE(queues.MaySpare(holders[8]));
}

class HardwareQueuesTest : public HeldKernelTest {
 protected:
  static constexpr uint32_t kStreams = kHardwareQueues + 4;

  static constexpr uint32_t kTheirs = 2;  // an allocation with few streams gets them at once

  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(MakeNeighbours());
    pinned_ = Pin(neighbour_.get());
    ASSERT_NE(pinned_, nullptr);
    for (uint32_t stream = 1; stream <= kStreams; ++stream) {
      ASSERT_TRUE(tenant_->CreateStream(stream, /*nonblocking=*/true));
    }
    // So that the driver has made all streams: another one would have to wait for kernels to end (device.h).
    for (uint32_t stream = 0; stream <= kStreams; ++stream) {
      ASSERT_TRUE(tenant_->WaitDone(stream, Scale(tenant_.get(), stream, memory_, 2)));
    }
    for (uint32_t stream = 1; stream <= kTheirs; ++stream) {
      ASSERT_TRUE(neighbour_->CreateStream(stream, /*nonblocking=*/true));
    }
    ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  }

  uint32_t* pinned_ = nullptr;

  // Kernels and copies, in a chain behind one another, in streams that it has used and in others.
  void ExpectNeighbourGoesOn() {
    for (uint32_t stream = 0; stream <= kTheirs; ++stream) {
      for (int i = 0; i < 5; ++i) Scale(neighbour_.get(), stream, theirs_, 2);
      neighbour_->Post<wire::Copy>({StreamId{stream}, wire::CopyKind::kDeviceToHost,
                                    reinterpret_cast<uint64_t>(pinned_), theirs_, 128});
      ASSERT_TRUE(neighbour_->WaitDone(stream, Scale(neighbour_.get(), stream, theirs_, 2)))
          << stream;
    }
  }
};

TEST_F(HardwareQueuesTest, Malicious_WorkBehindKernelsWithoutEndKeepsNobodyWaiting) {
  Gate gate(host_ + 64);
  std::array<Ticket, kStreams + 1> last{};
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    Hold(tenant_.get(), stream, memory_, gate);
    last[stream] = Scale(tenant_.get(), stream, memory_, 2);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  // The program's other streams go on as well.
  EXPECT_TRUE(tenant_->WaitDone(0, Scale(tenant_.get(), 0, memory_, 2)));
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    EXPECT_FALSE(tenant_->reader.Done(StreamId{stream}, last[stream])) << stream;
  }
  gate.Open();
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
}

TEST_F(HardwareQueuesTest, Malicious_StreamsThatWaitForAKernelWithoutEndKeepNobodyWaiting) {
  Gate gate(host_ + 64);
  Hold(tenant_.get(), 1, memory_, gate);
  tenant_->Post<wire::EventCreate>({wire::EventId{1}, 0});
  tenant_->Post<wire::EventRecord>({wire::EventId{1}, StreamId{1}});
  std::array<Ticket, kStreams + 1> last{};
  for (uint32_t stream = 2; stream <= kStreams; ++stream) {
    tenant_->Post<wire::StreamWaitEvent>({StreamId{stream}, wire::EventId{1}});
    last[stream] = Scale(tenant_.get(), stream, memory_, 2);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  EXPECT_FALSE(tenant_->reader.Done(StreamId{2}, last[2]));
  gate.Open();
  for (uint32_t stream = 2; stream <= kStreams; ++stream) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
}

TEST_F(HardwareQueuesTest, Malicious_LaunchesOfOneGraphInManyStreamsKeepNobodyWaiting) {
  Gate gate(host_ + 64);
  const HoldParams params{memory_, gate.address()};
  TestingGraph graph;
  graph.AddKernel(kHold, {reinterpret_cast<const uint8_t*>(&params), sizeof(params)});
  ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>({wire::GraphId{1}, 0, wire::HostPtr{0}, 0},
                                                  nullptr, graph.Block()),
            CUDA_SUCCESS);
  std::array<Ticket, kStreams + 1> last{};
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    last[stream] = tenant_->Post<wire::GraphLaunch>({wire::GraphId{1}, StreamId{stream}});
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  EXPECT_FALSE(tenant_->reader.Done(StreamId{1}, last[1]));
  gate.Open();
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
}

// What can begin at once waits in a queue each.
TEST_F(HardwareQueuesTest, Malicious_AGraphOfManyHeadsBehindAKernelWithoutEndKeepsNobodyWaiting) {
  Gate gate(host_ + 64);
  const ScaleParams params{memory_, 1};
  for (const bool fans_out : {false, true}) {
    TestingGraph graph;
    if (fans_out) graph.AddEmpty();
    for (uint32_t i = 0; i < kStreams; ++i) {
      graph.AddKernel(kScale, {reinterpret_cast<const uint8_t*>(&params), 12});
      if (fans_out) graph.AddEdge(0, i + 1);
    }
    ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>(
                  {wire::GraphId{1u + fans_out}, 0, wire::HostPtr{0}, 0}, nullptr, graph.Block()),
              CUDA_SUCCESS);
  }
  std::array<Ticket, 3> last{};
  for (const uint32_t stream : {1u, 2u}) {
    Hold(tenant_.get(), stream, memory_, gate);
    last[stream] = tenant_->Post<wire::GraphLaunch>({wire::GraphId{stream}, StreamId{stream}});
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  for (const uint32_t stream : {1u, 2u}) {
    EXPECT_FALSE(tenant_->reader.Done(StreamId{stream}, last[stream])) << stream;
  }
  gate.Open();
  for (const uint32_t stream : {1u, 2u}) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
}

// An event with timing keeps others' waiting that have it, too.
class TimingEventsTest : public HardwareQueuesTest {
 protected:
  static void MakeEvents(TestingTenant* tenant, uint32_t count) {
    for (uint32_t event = 1; event <= count; ++event) {
      tenant->Post<wire::EventCreate>({wire::EventId{event}, /*timing=*/1});
    }
  }
  static Ticket Record(TestingTenant* tenant, uint32_t event, uint32_t stream) {
    return tenant->Post<wire::EventRecord>({wire::EventId{event}, StreamId{stream}});
  }
  // In milliseconds.
  static float Elapsed(TestingTenant* tenant, uint32_t start, uint32_t end) {
    wire::EventElapsed::Reply reply{};
    EXPECT_EQ(tenant->Call<wire::EventElapsed>({wire::EventId{start}, wire::EventId{end}}, &reply),
              CUDA_SUCCESS);
    return std::bit_cast<float>(reply.milliseconds_bits);
  }
};

TEST_F(TimingEventsTest, Malicious_EventsBehindKernelsWithoutEndKeepNobodysWaiting) {
  MakeEvents(tenant_.get(), kStreams);
  MakeEvents(neighbour_.get(), 4);
  Gate gate(host_ + 64);
  std::array<Ticket, kStreams + 1> last{};
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    Hold(tenant_.get(), stream, memory_, gate);
    last[stream] = Record(tenant_.get(), stream, stream);
  }
  for (uint32_t stream = 0; stream <= kTheirs; ++stream) {
    Record(neighbour_.get(), 1, stream);
    Scale(neighbour_.get(), stream, theirs_, 2);
    ASSERT_TRUE(neighbour_->WaitDone(stream, Record(neighbour_.get(), 2, stream))) << stream;
    EXPECT_GT(Elapsed(neighbour_.get(), 1, 2), 0) << "as the executor has seen it";
  }
  ASSERT_NO_FATAL_FAILURE(ExpectNeighbourGoesOn());
  gate.Open();
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
  // Of one with timing and one without, in whatever order they were seen.
  EXPECT_LT(std::abs(Elapsed(tenant_.get(), 1, kStreams)), 60'000);
}

TEST_F(TimingEventsTest, Malicious_GraphsThatRecordThemKeepNobodysWaiting) {
  MakeEvents(tenant_.get(), kStreams);
  MakeEvents(neighbour_.get(), 2);
  Gate gate(host_ + 64);
  const HoldParams params{memory_, gate.address()};
  std::array<Ticket, kStreams + 1> last{};
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    TestingGraph graph;
    graph.AddKernel(kHold, {reinterpret_cast<const uint8_t*>(&params), sizeof(params)});
    graph.AddEvent(wire::GraphNodeKind::kEventRecord, stream);
    graph.AddEdge(0, 1);
    ASSERT_EQ(tenant_->Call<wire::GraphInstantiate>({wire::GraphId{stream}, 0, wire::HostPtr{0}, 0},
                                                    nullptr, graph.Block()),
              CUDA_SUCCESS);
  }
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    last[stream] = tenant_->Post<wire::GraphLaunch>({wire::GraphId{stream}, StreamId{stream}});
  }
  for (uint32_t stream = 0; stream <= kTheirs; ++stream) {
    Record(neighbour_.get(), 1, stream);
    Scale(neighbour_.get(), stream, theirs_, 2);
    ASSERT_TRUE(neighbour_->WaitDone(stream, Record(neighbour_.get(), 2, stream))) << stream;
    EXPECT_GT(Elapsed(neighbour_.get(), 1, 2), 0);
  }
  gate.Open();
  for (uint32_t stream = 1; stream <= kStreams; ++stream) {
    ASSERT_TRUE(tenant_->WaitDone(stream, last[stream])) << stream;
  }
}

TEST(TimingEvents, OneAllocationHasThemInAFewStreamsAtATime) {
  TimingEvents events;
  uint32_t mine = 0;
  uint32_t theirs = 0;
  std::array<uint32_t, 7> of_stream{};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(events.MayRecord(mine, of_stream[i]));
    events.Take(&mine, &of_stream[i]);
  }
  EXPECT_FALSE(events.MayRecord(mine, of_stream[6])) << "another stream";
  EXPECT_TRUE(events.MayRecord(mine, of_stream[5])) << "one that has some already";
  EXPECT_FALSE(events.MayRecord(theirs, 0));
  EXPECT_TRUE(events.MayLaunch(theirs, 0)) << "a graph cannot do without";
  EXPECT_FALSE(events.MayLaunch(mine, of_stream[6]));
  EXPECT_TRUE(events.MayLaunch(mine, of_stream[5]));
  events.Take(&mine, &of_stream[5]);
  events.Give(&mine, &of_stream[5]);
  EXPECT_FALSE(events.MayRecord(mine, of_stream[6]));
  for (size_t i = 0; i < 6; ++i) events.Give(&mine, &of_stream[i]);
  EXPECT_FALSE(events.any());
  EXPECT_TRUE(events.MayRecord(theirs, 0));
}

}  // namespace
}  // namespace gpuloom::executor
