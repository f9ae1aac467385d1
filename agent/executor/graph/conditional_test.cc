// SPDX-License-Identifier: Apache-2.0
// Conditional handles and the graphs that have them, in sessions of the real loop, with a driver that
// needs no GPU.
#include <gtest/gtest.h>

#include <algorithm>

#include "agent/executor/testing/graph_test_fixture.h"

namespace gpuloom::executor {
namespace {

using wire::Fatal;
using wire::GraphId;
using wire::HostPtr;
using wire::ReservationId;
using wire::Ticket;

class ConditionTest : public GraphTest {
 protected:
  std::optional<CUresult> Create(uint32_t reservation, uint64_t* handle = nullptr) {
    wire::ConditionCreate::Reply reply{};
    const auto result =
        tenant_->Call<wire::ConditionCreate>({ReservationId{reservation}, 1, 1, 0}, &reply);
    if (handle != nullptr) *handle = reply.handle;
    return result;
  }
  void Destroy(uint32_t graph) { tenant_->Post<wire::GraphDestroy>({GraphId{graph}}); }
  void Drop(uint32_t reservation) {
    tenant_->Post<wire::ConditionsDrop>({ReservationId{reservation}});
  }

  // A kernel, and a node of one body with a kernel and a fill.
  static TestingGraph Loop(uint32_t reservation, uint32_t condition = 0, uint32_t grid = 1) {
    TestingGraph graph;
    graph.AddKernel(1, PlainParams());
    graph.AddConditional(reservation, condition, CU_GRAPH_COND_TYPE_WHILE, {2});
    graph.AddEdge(0, 1);
    graph.AddKernel(1, PlainParams(), {}, grid);
    graph.AddKernel(1, PlainParams());
    graph.AddEdge(2, 3);
    return graph;
  }
};

TEST_F(ConditionTest, ConditionsBeginAtZeroWhereTheProgramDoesNotSay) {
  const auto create = [&](uint32_t value, uint32_t flags) {
    (void)TestingDriver::TakeCalls();
    EXPECT_EQ(tenant_->Call<wire::ConditionCreate>({ReservationId{1}, value, flags, 0}),
              CUDA_SUCCESS);
  };
  create(7, 0);
  EXPECT_TRUE(TestingDriver::WasCalled("condition 0 1"));
  create(7, wire::kConditionAssignsDefault);
  EXPECT_TRUE(TestingDriver::WasCalled("condition 7 1"));
}

TEST_F(ConditionTest, AGraphIsMadeWithItsHandles) {
  uint64_t first = 0;
  uint64_t second = 0;
  ASSERT_EQ(Create(1, &first), CUDA_SUCCESS);
  ASSERT_EQ(Create(1, &second), CUDA_SUCCESS);
  EXPECT_NE(first, second);
  EXPECT_EQ(TestingDriver::live_graphs(), graphs_before_ + 1);
  TestingGraph graph = Loop(1);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  EXPECT_EQ(TestingDriver::live_graphs(), graphs_before_ + 2) << "no graph but the reserved one";
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
  Drop(1);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
  Destroy(1);
  EXPECT_TRUE(WaitGraphs(graphs_before_));
}

TEST_F(ConditionTest, TheSameGraphIsInstantiatedAgain) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  for (uint32_t round = 0; round < 3; ++round) {
    ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
    EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
    Destroy(1);
  }
}

// A library that the graph before named is unloaded once the next names another.
TEST_F(ConditionTest, WhatOneNamedGoesWithTheNext) {
  const std::string own = std::string(kEmptyPtx) + ".visible .global .u32 counter;\n";
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  for (uint32_t id = 2; id < 6; ++id) {
    ASSERT_TRUE(tenant_->LoadKernel(id, id, "k", own));
    TestingGraph graph;
    graph.AddKernel(id, PlainParams());
    graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
    graph.AddEdge(0, 1);
    graph.AddKernel(id, PlainParams());
    ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
    EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
    Destroy(1);
    ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({wire::LibraryId{id}}), CUDA_SUCCESS);
  }
  long unloads = 0;
  EXPECT_TRUE(tenant_->Wait([&] {
    const auto calls = TestingDriver::TakeCalls();
    unloads += std::count(calls.begin(), calls.end(), "unload");
    return unloads == 3;
  })) << unloads;
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// Destroying an executable graph with conditional nodes waits for all work of the device.
TEST_F(ConditionTest, DestroyingLeavesTheNeighboursAlone) {
  auto neighbour = scheduler_.AddTenant();
  ASSERT_TRUE(neighbour->LoadKernel(1, 1, "k", kEmptyPtx));
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Create(2), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(2, Loop(2)), CUDA_SUCCESS);
  ASSERT_TRUE(tenant_->WaitDone(0, Launch(1)));
  ASSERT_TRUE(tenant_->WaitDone(0, Launch(2)));
  const int live = TestingDriver::live_graphs();
  TestingDriver::TakeCalls();
  TestingDriver::Hold();
  const Ticket spinning = neighbour->LaunchPlain(0, 1);
  ASSERT_TRUE(neighbour->Wait([] {
    const auto calls = TestingDriver::TakeCalls();
    return std::any_of(calls.begin(), calls.end(),
                       [](const std::string& call) { return call.starts_with("launch "); });
  }));
  // One by its program, one by the end of the session.
  Destroy(1);
  ASSERT_EQ(Create(3), CUDA_SUCCESS);
  tenant_->doorbell.Reset();
  ASSERT_TRUE(scheduler_.WaitEnded(tenant_->order.session_id).has_value());
  // The workers have had their turn when the neighbour's calls are answered.
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(neighbour->Call<wire::ConditionCreate>({ReservationId{1}, 0, 0, 0}), CUDA_SUCCESS);
  }
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
  TestingDriver::Release();
  EXPECT_TRUE(neighbour->WaitDone(0, spinning));
  EXPECT_TRUE(neighbour->Wait([&] { return TestingDriver::live_graphs() <= live - 3; }));
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

// A program that makes one after the other is not held up by those that are gone.
TEST_F(ConditionTest, ManyComeAndGoBesideWork) {
  for (uint32_t i = 1; i <= 20; ++i) {
    ASSERT_EQ(Create(i), CUDA_SUCCESS);
    ASSERT_EQ(Instantiate(1, Loop(i)), CUDA_SUCCESS);
    tenant_->LaunchPlain(0, 1);
    const Ticket last = Launch(1);
    Destroy(1);
    Drop(i);
    ASSERT_TRUE(tenant_->WaitDone(0, last));
  }
  long destroyed = 0;
  EXPECT_TRUE(tenant_->Wait([&] {
    const auto calls = TestingDriver::TakeCalls();
    destroyed += std::count(calls.begin(), calls.end(), "destroy conditional graph");
    return destroyed == 20;
  })) << destroyed;
  EXPECT_EQ(TestingDriver::unquiet_calls(), 0);
}

TEST_F(ConditionTest, HandlesAreMadeLater) {
  uint64_t first = 0;
  uint64_t second = 0;
  ASSERT_EQ(Create(1, &first), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  ASSERT_EQ(Create(1, &second), CUDA_SUCCESS);
  EXPECT_NE(first, second);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(ConditionTest, WithOtherNodesItIsNot) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  Destroy(1);
  TestingGraph other;
  other.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
  other.AddKernel(1, PlainParams());
  EXPECT_EQ(Instantiate(1, other), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
}

TEST_F(ConditionTest, TheNextWaitsForTheOneBefore) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  TestingDriver::Hold();
  const Ticket running = Launch(1);
  Destroy(1);
  const Ticket asked =
      tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, Loop(1).Block(), 5);
  // Answered behind it, but without its waiting.
  ASSERT_EQ(Create(2), CUDA_SUCCESS);
  EXPECT_EQ(tenant_->reader.FindReply(5, asked), nullptr);
  TestingDriver::Release();
  ASSERT_TRUE(tenant_->WaitDone(0, running));
  ASSERT_TRUE(tenant_->Wait([&] { return tenant_->reader.FindReply(5, asked) != nullptr; }));
  EXPECT_EQ(static_cast<CUresult>(tenant_->reader.FindReply(5, asked)->result), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(ConditionTest, ASessionEndsWhileOneWaits) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Create(2), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  TestingDriver::Hold();
  Launch(1);
  tenant_->Post<wire::GraphInstantiate>({GraphId{2}, 0, HostPtr{0}, 0}, Loop(1).Block(), 5);
  ASSERT_EQ(Create(3), CUDA_SUCCESS);
  tenant_->doorbell.Reset();
  TestingDriver::Release();
  ExpectDrained();
}

TEST_F(ConditionTest, WhatIsNotTheSessionsIsAnAnswer) {
  auto neighbour = scheduler_.AddTenant();
  ASSERT_EQ(neighbour->Call<wire::ConditionCreate>({ReservationId{7}, 0, 0, 0}), CUDA_SUCCESS);
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Create(2), CUDA_SUCCESS);
  wire::GraphInstantiate::Reply reply{};
  EXPECT_EQ(Instantiate(1, Loop(7), &reply), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(reply.failed_node, 1u);
  EXPECT_EQ(Instantiate(1, Loop(1, 2), &reply), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reply.failed_node, 1u);
  const auto two = [](uint32_t reservation, uint32_t condition, uint32_t kind) {
    TestingGraph graph;
    graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_IF, {0});
    graph.AddConditional(reservation, condition, kind, {0});
    return graph;
  };
  EXPECT_EQ(Instantiate(1, two(1, 0, 0), &reply), CUDA_ERROR_INVALID_VALUE) << "used already";
  EXPECT_EQ(reply.failed_node, 1u);
  EXPECT_EQ(Instantiate(1, two(2, 0, 0)), CUDA_ERROR_INVALID_VALUE) << "another graph's";
  EXPECT_EQ(Instantiate(1, two(1, 1, 3)), CUDA_ERROR_INVALID_VALUE) << "no kind";
  EXPECT_EQ(Instantiate(1, two(1, 1, 2)), CUDA_SUCCESS);
}

TEST_F(ConditionTest, AFailedNodeOfABodyIsNamed) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  wire::GraphInstantiate::Reply reply{};
  EXPECT_EQ(Instantiate(1, Loop(1, 0, /*grid=*/0), &reply), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reply.failed_node, 2u);
  EXPECT_EQ(Instantiate(1, Loop(1)), CUDA_ERROR_NOT_SUPPORTED) << "half of the nodes are there";
}

TEST_F(ConditionTest, HandlesAreBounded) {
  // Many at a time: each alone would wait for its answer.
  constexpr uint32_t kAtATime = 16;
  for (uint32_t i = 0; i < wire::kMaxConditions; i += kAtATime) {
    Ticket asked[kAtATime];
    for (uint16_t k = 0; k < kAtATime; ++k) {
      asked[k] = tenant_->Post<wire::ConditionCreate>({ReservationId{1}, 1, 1, 0}, {}, k);
    }
    for (uint16_t k = 0; k < kAtATime; ++k) {
      const wire::ReplySlot* answer = nullptr;
      ASSERT_TRUE(tenant_->Wait(
          [&] { return (answer = tenant_->reader.FindReply(k, asked[k])) != nullptr; }));
      ASSERT_EQ(static_cast<CUresult>(answer->result), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(Create(1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Create(2), CUDA_SUCCESS);
  Drop(1);
  EXPECT_EQ(Create(1), CUDA_SUCCESS);
}

// What of the definition lies in the driver's graph depends on what its copies copy.
TEST_F(ConditionTest, ADefinitionThatIsCutElsewhereIsAnother) {
  const uint64_t host = tenant_->order.host_range_begin + (1u << 20);
  std::memset(reinterpret_cast<void*>(host), 0, 4096);
  // ThreadSanitizer does not see that the ring orders what the worker does behind this: each side has its
  // own mapping of it. Of a lock that both take it knows.
  (void)TestingDriver::TakeCalls();
  ASSERT_EQ(tenant_->Call<wire::HostRegister>({HostPtr{host}, 4096}), CUDA_SUCCESS);
  const uint64_t memory = tenant_->Alloc(4096);
  const auto define = [&](uint32_t reservation, bool on_host) {
    TestingGraph graph;
    graph.AddKernel(1, PlainParams());
    if (on_host) {
      graph.AddHostCopy(host, host + 1024, 64);
    } else {
      graph.AddCopy(memory, memory + 1024, 64, 1, 1, 64, 1);
    }
    graph.AddConditional(reservation, 0, CU_GRAPH_COND_TYPE_IF, {1});
    graph.AddEdge(0, 1);
    graph.AddKernel(1, PlainParams());
    return graph;
  };
  for (const bool host_first : {true, false}) {
    const uint32_t reservation = host_first ? 1 : 2;
    ASSERT_EQ(Create(reservation), CUDA_SUCCESS);
    for (int again = 0; again < 2; ++again) {
      ASSERT_EQ(Instantiate(1, define(reservation, host_first)), CUDA_SUCCESS);
      EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
      Destroy(1);
    }
    EXPECT_EQ(Instantiate(1, define(reservation, !host_first)), CUDA_ERROR_NOT_SUPPORTED);
  }
}

class MaliciousConditionTest : public ConditionTest {
 protected:
  void ExpectEnds(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal))
        << "ended with: " << wire::FatalText(tenant_->reader.fatal());
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->drained, 1u);
    auto honest = scheduler_.AddTenant();
    ASSERT_EQ(honest->ready.ok, 1u);
    EXPECT_EQ(honest->Call<wire::ConditionCreate>({ReservationId{1}, 0, 0, 0}), CUDA_SUCCESS);
    honest->Post<wire::ConditionsDrop>({ReservationId{1}});
    EXPECT_TRUE(honest->Wait([&] { return TestingDriver::live_graphs() == graphs_before_; }));
  }
};

TEST_F(MaliciousConditionTest, UnknownFlags) {
  tenant_->Post<wire::ConditionCreate>({ReservationId{1}, 0, 2, 0}, {}, 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousConditionTest, NoId) {
  tenant_->Post<wire::ConditionCreate>({ReservationId{0}, 0, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousConditionTest, IdBeyondAll) {
  tenant_->Post<wire::ConditionCreate>({ReservationId{wire::kMaxReservations}, 0, 0, 0}, {}, 0);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousConditionTest, DropOfNothing) {
  Drop(9);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousConditionTest, ABodyInItself) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  TestingGraph graph;
  graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
  tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, graph.Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousConditionTest, HostNodesInABody) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  TestingGraph graph;
  graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {1});
  graph.AddHostCall(1);
  tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, graph.Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousConditionTest, UpdateOfAConditionalNode) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  TestingGraph update;
  update.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {0});
  update.Rename(0, 1);
  tenant_->Post<wire::GraphUpdate>({GraphId{1}, 0, HostPtr{0}, 0}, update.Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

// The driver lets one thread at a time use a graph.
TEST_F(MaliciousConditionTest, AHandleWhileAGraphIsMade) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  TestingDriver::Hold();
  tenant_->LaunchPlain(0, 1);
  // It waits for a quiet moment, which does not come.
  tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, Loop(1).Block(), 3);
  // Until its definition is read a handle may still be made.
  EXPECT_TRUE(tenant_->Wait([&] { return !Create(1).has_value(); }));
  EXPECT_EQ(tenant_->reader.fatal(), Fatal::kBadArgument);
  TestingDriver::Release();
  ExpectEnds(Fatal::kBadArgument);
}

// Of one reservation: the shim asks for one at a time.
TEST_F(MaliciousConditionTest, GraphsThatWaitWithoutEnd) {
  ASSERT_EQ(Create(1), CUDA_SUCCESS);
  ASSERT_EQ(Instantiate(1, Loop(1)), CUDA_SUCCESS);
  for (uint16_t i = 2; i < 20; ++i) {
    tenant_->Post<wire::GraphInstantiate>({GraphId{i}, 0, HostPtr{0}, 0}, Loop(1).Block(), i);
  }
  ExpectEnds(Fatal::kBadArgument);
}

}  // namespace
}  // namespace gpuloom::executor
