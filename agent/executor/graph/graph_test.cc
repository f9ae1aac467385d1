// SPDX-License-Identifier: Apache-2.0
// Graphs in sessions of the real loop, with a driver that needs no GPU.
#include "agent/executor/graph/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/executor/testing/graph_test_fixture.h"

namespace gpuloom::executor {
namespace {

using ::testing::Contains;
using ::testing::Not;
using wire::DevicePtr;
using wire::EventId;
using wire::Fatal;
using wire::GraphId;
using wire::HostPtr;
using wire::KernelId;
using wire::LibraryId;
using wire::StreamId;
using wire::Ticket;

TestingGraph TwoKernels() {
  TestingGraph graph;
  graph.AddKernel(1, PlainParams());
  graph.AddKernel(1, PlainParams());
  graph.AddEdge(0, 1);
  return graph;
}

TEST_F(GraphTest, LaunchesAsOne) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  (void)TestingDriver::TakeCalls();
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_THAT(calls, Contains(::testing::StartsWith("graph")));
  EXPECT_THAT(calls, Not(Contains(::testing::StartsWith("launch"))));
  EXPECT_EQ(tenant_->reader.async_error_count(), 0u);
  scheduler_.RemoveTenant(*tenant_);
  const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->kernels_launched, 2u);
  EXPECT_TRUE(WaitGraphs(graphs_before_));
}

TEST_F(GraphTest, EveryKindIsInstantiated) {
  const uint64_t memory = tenant_->Alloc(1u << 20);
  tenant_->Post<wire::EventCreate>({EventId{1}, 1});
  TestingGraph graph;
  graph.AddEmpty();
  graph.AddKernel(1, PlainParams(), {{CU_LAUNCH_ATTRIBUTE_PRIORITY, 0, {}}});
  graph.AddCopy(memory, memory + 4096, 64, 4, 2, 128, 8);
  graph.AddFill(memory, 16, 4, 64);
  graph.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
  graph.AddEvent(wire::GraphNodeKind::kEventWait, 1);
  graph.AddOperation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, memory, 1});
  for (uint32_t i = 1; i < 7; ++i) graph.AddEdge(i - 1, i);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(GraphTest, LargeDefinitionsComeThroughTheArena) {
  TestingGraph graph;
  for (uint32_t i = 0; i < 10'000; ++i) {
    graph.AddKernel(1, PlainParams());
    if (i != 0) graph.AddEdge(i - 1, i);
  }
  ASSERT_EQ(InstantiateFromArena(1, graph), CUDA_SUCCESS);
  EXPECT_THAT(TestingDriver::TakeCalls(), Contains(::testing::StartsWith("upload")));
  const Ticket upload = tenant_->Post<wire::GraphUpload>({GraphId{1}, StreamId{0}});
  EXPECT_TRUE(tenant_->WaitDone(0, upload));
  EXPECT_THAT(TestingDriver::TakeCalls(), Not(Contains(::testing::StartsWith("upload"))));
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(GraphTest, TheFailedNodeIsNamed) {
  TestingGraph graph = TwoKernels();
  graph.AddKernel(1, PlainParams(), {}, /*grid=*/0);
  wire::GraphInstantiate::Reply reply{};
  EXPECT_EQ(Instantiate(1, graph, &reply), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reply.failed_node, 2u);
  EXPECT_TRUE(WaitGraphs(graphs_before_));
  EXPECT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS) << "the id is free again";
}

TEST_F(GraphTest, WhatIsNotTheSessionsIsAnAnswer) {
  auto neighbour = scheduler_.AddTenant();
  const uint64_t theirs = neighbour->Alloc(1u << 20);
  const uint64_t mine = tenant_->Alloc(1u << 20);
  const auto expect = [&](CUresult result, const auto& add) {
    TestingGraph graph;
    graph.AddEmpty();
    add(graph);
    wire::GraphInstantiate::Reply reply{};
    EXPECT_EQ(Instantiate(1, graph, &reply), result);
    EXPECT_EQ(reply.failed_node, 1u);
  };
  expect(CUDA_ERROR_INVALID_HANDLE, [](TestingGraph& g) { g.AddKernel(2, PlainParams()); });
  expect(CUDA_ERROR_INVALID_VALUE, [](TestingGraph& g) { g.AddKernel(1, PlainParams().first(8)); });
  expect(CUDA_ERROR_NOT_SUPPORTED, [](TestingGraph& g) {
    g.AddKernel(1, PlainParams(), {{CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT, 0, {}}});
  });
  expect(CUDA_ERROR_INVALID_VALUE,
         [&](TestingGraph& g) { g.AddCopy(mine, theirs, 64, 1, 1, 0, 0); });
  expect(CUDA_ERROR_INVALID_VALUE,
         [&](TestingGraph& g) { g.AddCopy(mine, mine, 4096, 300, 1, 4096, 0); });
  expect(CUDA_ERROR_INVALID_VALUE, [&](TestingGraph& g) {
    g.AddCopy(mine, mine, 2, UINT64_MAX / 2, 3, UINT64_MAX / 2, UINT64_MAX / 2);
  });
  expect(CUDA_ERROR_INVALID_VALUE, [&](TestingGraph& g) { g.AddFill(theirs, 16, 1, 0); });
  expect(CUDA_ERROR_INVALID_VALUE,
         [&](TestingGraph& g) { g.AddFill(mine, UINT64_MAX / 4 + 2, 1, 0); });
  expect(CUDA_ERROR_INVALID_HANDLE,
         [](TestingGraph& g) { g.AddEvent(wire::GraphNodeKind::kEventRecord, 9); });
  expect(CUDA_ERROR_INVALID_VALUE, [&](TestingGraph& g) {
    g.AddOperation({CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, theirs, 1});
  });
  expect(CUDA_ERROR_INVALID_VALUE, [&](TestingGraph& g) {
    g.AddOperation({CU_STREAM_MEM_OP_WAIT_VALUE_64, 0, mine + (1u << 20) - 4, 1});
  });
  EXPECT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
}

TEST_F(GraphTest, UpdatesComeBetweenTheLaunches) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  (void)TestingDriver::TakeCalls();
  TestingGraph update;
  update.AddKernel(1, PlainParams());
  update.Rename(0, 1);
  Launch(1);
  EXPECT_EQ(Update(1, update), CUDA_SUCCESS);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
  auto calls = TestingDriver::TakeCalls();
  std::erase_if(calls, [](const std::string& call) { return call.starts_with("record"); });
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_THAT(calls[0], ::testing::StartsWith("graph"));
  EXPECT_EQ(calls[1], "update");
  EXPECT_EQ(calls[2], calls[0]);
}

TEST_F(GraphTest, WhatItsUpdatesNamedStaysAsLongAsTheGraph) {
  // One with a variable is nobody else's.
  const std::string own = std::string(kEmptyPtx) + ".visible .global .u32 counter;\n";
  TestingGraph graph;
  for (uint32_t id = 2; id < 6; ++id) {
    ASSERT_TRUE(tenant_->LoadKernel(id, id, "k", own));
    if (id < 4) graph.AddKernel(id, PlainParams());
  }
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  for (const uint32_t id : {4, 3, 5, 4, 2}) {
    TestingGraph update;
    update.AddKernel(id, PlainParams());
    ASSERT_EQ(Update(1, update), CUDA_SUCCESS);
  }
  (void)TestingDriver::TakeCalls();
  for (uint32_t id = 2; id < 6; ++id) {
    ASSERT_EQ(tenant_->Call<wire::LibraryUnload>({LibraryId{id}}), CUDA_SUCCESS);
  }
  long unloads = 0;
  const auto count = [&] {
    const auto calls = TestingDriver::TakeCalls();
    return unloads += std::count(calls.begin(), calls.end(), "unload");
  };
  EXPECT_TRUE(tenant_->Never([&] { return count() != 0; }));
  tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  EXPECT_TRUE(tenant_->Wait([&] { return count() == 4; })) << unloads;
}

TEST_F(GraphTest, LargeUpdatesAreMadeByAWorker) {
  TestingGraph graph;
  for (uint32_t i = 0; i < 3000; ++i) graph.AddKernel(1, PlainParams());
  ASSERT_EQ(InstantiateFromArena(1, graph), CUDA_SUCCESS);
  const std::vector<uint8_t> block = graph.Block();
  const uint64_t address = tenant_->order.host_range_begin + (1u << 20);
  std::memcpy(reinterpret_cast<void*>(address), block.data(), block.size());
  (void)TestingDriver::TakeCalls();
  EXPECT_EQ(tenant_->Call<wire::GraphUpdate>({GraphId{1}, 0, HostPtr{address}, block.size()}),
            CUDA_SUCCESS);
  const auto calls = TestingDriver::TakeCalls();
  EXPECT_EQ(std::count(calls.begin(), calls.end(), "update"), 3000);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(GraphTest, AnUpdatesFailedNodeIsNamed) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  TestingGraph update;
  update.AddKernel(1, PlainParams(), {}, /*grid=*/0);
  update.Rename(0, 1);
  wire::GraphUpdate::Reply reply{};
  EXPECT_EQ(Update(1, update, &reply), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(reply.failed_node, 1u);
  EXPECT_TRUE(tenant_->WaitDone(0, Launch(1)));
}

TEST_F(GraphTest, ADestroyedGraphStillRuns) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  TestingDriver::Hold();
  const Ticket last = Launch(1);
  tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS) << "the id is free";
  EXPECT_EQ(TestingDriver::live_graphs(), graphs_before_ + 4);
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(0, last));
  EXPECT_TRUE(WaitGraphs(graphs_before_ + 2));
}

TEST_F(GraphTest, EventsOfAGraphAreDoneWithIt) {
  tenant_->Post<wire::EventCreate>({EventId{1}, 1});
  tenant_->Post<wire::EventCreate>({EventId{2}, 1});
  TestingGraph graph;
  graph.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
  graph.AddEvent(wire::GraphNodeKind::kEventRecord, 2);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  TestingDriver::Hold();
  const Ticket launch = Launch(1);
  EXPECT_EQ(tenant_->Call<wire::EventElapsed>({EventId{1}, EventId{2}}), CUDA_ERROR_NOT_READY);
  TestingDriver::Release();
  ASSERT_TRUE(tenant_->WaitDone(0, launch));
  EXPECT_EQ(tenant_->Call<wire::EventElapsed>({EventId{1}, EventId{2}}), CUDA_SUCCESS);
}

TEST_F(GraphTest, WaitsForTheEventsLatestRecord) {
  ASSERT_TRUE(tenant_->CreateStream(1, true));
  ASSERT_TRUE(tenant_->CreateStream(2, true));
  tenant_->Post<wire::EventCreate>({EventId{1}, 0});
  TestingGraph graph;
  graph.AddEvent(wire::GraphNodeKind::kEventWait, 1);
  ASSERT_EQ(Instantiate(1, graph), CUDA_SUCCESS);
  TestingDriver::Hold();
  tenant_->LaunchPlain(1, 1);
  tenant_->Post<wire::EventRecord>({EventId{1}, StreamId{1}});
  (void)TestingDriver::TakeCalls();
  const Ticket launch = Launch(1, 2);
  EXPECT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("wait"); }));
  TestingDriver::Release();
  EXPECT_TRUE(tenant_->WaitDone(2, launch));
}

TEST_F(GraphTest, ASessionThatDiesWithGraphsQueuedGivesThemBack) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  TestingDriver::Hold();
  for (int i = 0; i < 1000; ++i) Launch(1);
  tenant_->Post<wire::GraphInstantiate>({GraphId{2}, 0, HostPtr{0}, 0}, TwoKernels().Block(), 3);
  ASSERT_TRUE(tenant_->Wait([] { return TestingDriver::WasCalled("graph"); }));
  tenant_->doorbell.Reset();
  TestingDriver::Release();
  ExpectDrained();
}

TEST_F(GraphTest, ASessionsNodesAreBounded) {
  TestingGraph graph;
  for (uint32_t i = 0; i < wire::kMaxGraphNodes; ++i) graph.AddEmpty();
  uint32_t made = 0;
  while (made < 8 && InstantiateFromArena(made + 1, graph) == CUDA_SUCCESS) ++made;
  EXPECT_EQ(made, kMaxSessionGraphNodes / wire::kMaxGraphNodes);
  tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  EXPECT_EQ(InstantiateFromArena(1, graph), CUDA_SUCCESS);
}

TEST_F(GraphTest, WhatCostsTheRingThreadIsBounded) {
  const uint64_t memory = tenant_->Alloc(1u << 20);
  tenant_->Post<wire::EventCreate>({EventId{1}, 1});
  const wire::GraphMemoryOperation wait{CU_STREAM_MEM_OP_WAIT_VALUE_32, 0, memory, 1};
  TestingGraph records, operations, calls;
  for (uint32_t i = 0; i < 1024; ++i) {
    records.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
    operations.AddOperation(wait);
    if (i != 0) operations.AddEdge(i - 1, i);
    calls.AddHostCall(i);
  }
  EXPECT_EQ(InstantiateFromArena(1, records), CUDA_SUCCESS);
  EXPECT_EQ(InstantiateFromArena(2, operations), CUDA_SUCCESS);
  EXPECT_EQ(InstantiateFromArena(3, calls), CUDA_SUCCESS);
  records.AddEvent(wire::GraphNodeKind::kEventRecord, 1);
  operations.AddOperation(wait);
  calls.AddHostCall(0);
  EXPECT_EQ(InstantiateFromArena(4, records), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(InstantiateFromArena(4, operations), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(InstantiateFromArena(4, calls), CUDA_ERROR_NOT_SUPPORTED);
}

// ---- hostile tenants

class MaliciousGraphTest : public GraphTest {
 protected:
  void ExpectEnds(Fatal fatal) {
    EXPECT_TRUE(tenant_->WaitFatal(fatal))
        << "ended with: " << wire::FatalText(tenant_->reader.fatal());
    const auto ended = scheduler_.WaitEnded(tenant_->order.session_id);
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->fatal, static_cast<uint32_t>(fatal));
    EXPECT_EQ(ended->drained, 1u);
    auto honest = scheduler_.AddTenant();
    ASSERT_EQ(honest->ready.ok, 1u);
    EXPECT_TRUE(honest->LoadKernel(1, 1, "k", kEmptyPtx));
    EXPECT_TRUE(honest->WaitDone(0, honest->LaunchPlain(0, 1)));
  }
  void PostBlock(const std::vector<uint8_t>& block) {
    tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{0}, 0}, block, 0);
  }
};

TEST_F(MaliciousGraphTest, Cycle) {
  TestingGraph graph = TwoKernels();
  graph.AddEdge(1, 0);
  PostBlock(graph.Block());
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, EdgeToNowhere) {
  TestingGraph graph = TwoKernels();
  graph.AddEdge(0, 2);
  PostBlock(graph.Block());
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, TruncatedDefinition) {
  std::vector<uint8_t> block = TwoKernels().Block();
  block.resize(block.size() - 16);
  PostBlock(block);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, HugeCounts) {
  std::vector<uint8_t> block = TwoKernels().Block();
  const wire::GraphHead head{UINT32_MAX, UINT32_MAX, block.size()};
  std::memcpy(block.data(), &head, sizeof(head));
  PostBlock(block);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, DefinitionOutsideTheArena) {
  const uint64_t end = tenant_->order.host_range_begin + tenant_->order.host_range_bytes;
  tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 0, HostPtr{end - 16}, 64}, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousGraphTest, DefinitionThatIsTooLarge) {
  tenant_->Post<wire::GraphInstantiate>(
      {GraphId{1}, 0, HostPtr{tenant_->order.host_range_begin}, wire::kMaxGraphBytes + 1}, {}, 0);
  ExpectEnds(Fatal::kBadRange);
}

TEST_F(MaliciousGraphTest, UnknownFlags) {
  tenant_->Post<wire::GraphInstantiate>({GraphId{1}, 2, HostPtr{0}, 0}, TwoKernels().Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, IdTwice) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  EXPECT_EQ(Instantiate(1, TwoKernels()), std::nullopt);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousGraphTest, LaunchOfAnUnknownGraph) {
  Launch(7);
  ExpectEnds(Fatal::kBadHandle);
}

TEST_F(MaliciousGraphTest, UpdateOfAnotherKind) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  TestingGraph update;
  update.AddHostCall(1);
  tenant_->Post<wire::GraphUpdate>({GraphId{1}, 0, HostPtr{0}, 0}, update.Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(MaliciousGraphTest, UpdateOfANodeThatIsNotThere) {
  ASSERT_EQ(Instantiate(1, TwoKernels()), CUDA_SUCCESS);
  TestingGraph update;
  update.AddKernel(1, PlainParams());
  update.Rename(0, 2);
  tenant_->Post<wire::GraphUpdate>({GraphId{1}, 0, HostPtr{0}, 0}, update.Block(), 0);
  ExpectEnds(Fatal::kBadArgument);
}

TEST_F(GraphTest, AGraphIsPaidForBeforeItIsMade) {
  TestingGraph small;
  small.AddEmpty();
  TestingGraph large;
  for (uint32_t i = 0; i < 100; ++i) {
    large.AddEmpty();
    if (i != 0) large.AddEdge(i - 1, i);
  }
  ASSERT_EQ(Instantiate(1, small), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), kGraphTakesOfDeviceBytes);
  ASSERT_EQ(Instantiate(2, large), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(),
            kGraphTakesOfDeviceBytes + 100 * kGraphNodeTakesOfDeviceBytes);
  scheduler_.quota_bytes = scheduler_.memory_in_use();
  const int live = TestingDriver::live_graphs();
  EXPECT_EQ(Instantiate(3, small), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(TestingDriver::live_graphs(), live);
  tenant_->Post<wire::GraphDestroy>({GraphId{2}});
  EXPECT_TRUE(
      tenant_->Wait([&] { return scheduler_.memory_in_use() == kGraphTakesOfDeviceBytes; }));
  EXPECT_EQ(Instantiate(3, small), CUDA_SUCCESS);
}

TEST_F(GraphTest, Malicious_WhatIsSideBySideIsPaidForEach) {
  TestingGraph wide;
  for (int i = 0; i < 100; ++i) wide.AddEmpty();
  ASSERT_EQ(Instantiate(1, wide), CUDA_SUCCESS);
  EXPECT_EQ(scheduler_.memory_in_use(), 100 * kGraphTakesOfDeviceBytes);
}

constexpr uint32_t kLargeParamBytes = 32'000;

TEST_F(GraphTest, ParametersAreMemoryOfTheDevicesToo) {
  ASSERT_TRUE(tenant_->LoadKernel(2, 2, "large", kEmptyPtx));
  const std::vector<uint8_t> params(kLargeParamBytes);
  const uint64_t before = scheduler_.memory_in_use();
  const auto more = [&] { return scheduler_.memory_in_use() - before; };
  TestingGraph graph, plain, update;
  for (uint32_t i = 0; i < 100; ++i) {
    graph.AddKernel(2, params);
    plain.AddKernel(1, PlainParams());
    if (i == 0) continue;
    graph.AddEdge(i - 1, i);
    plain.AddEdge(i - 1, i);
  }
  constexpr uint64_t kLarge = 100 * (kGraphNodeTakesOfDeviceBytes + kLargeParamBytes);
  ASSERT_EQ(InstantiateFromArena(1, graph), CUDA_SUCCESS);
  EXPECT_EQ(more(), kLarge);
  tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  ASSERT_TRUE(tenant_->Wait([&] { return more() == 0; }));
  // An update may name a kernel with larger parameters.
  ASSERT_EQ(InstantiateFromArena(1, plain), CUDA_SUCCESS);
  const uint64_t small = more();
  update.AddKernel(2, params);
  update.Rename(0, 7);
  ASSERT_EQ(Update(1, update), CUDA_SUCCESS);
  EXPECT_GE(more(), small + kLargeParamBytes - PlainParams().size());
  const uint64_t grown = more();
  EXPECT_EQ(Update(1, update), CUDA_SUCCESS);
  EXPECT_EQ(more(), grown) << "it is paid for";
  scheduler_.quota_bytes = scheduler_.memory_in_use();
  const auto update_from = [&](uint32_t first) {
    for (uint32_t i = first; i < 100; ++i) {
      TestingGraph next;
      next.AddKernel(2, params);
      next.Rename(0, i);
      if (const auto result = Update(1, next); result != CUDA_SUCCESS) return result;
    }
    return std::optional<CUresult>(CUDA_SUCCESS);
  };
  EXPECT_EQ(update_from(8), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Update(1, update), CUDA_SUCCESS) << "what is paid for stays so";
  tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  EXPECT_TRUE(tenant_->Wait([&] { return more() == 0; }));
}

class GraphBudgetTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSessionBytes = 16u << 20;
  static constexpr uint32_t kNodes = 50;
  static constexpr uint64_t kKeptBytes = kNodes * kGraphKeepsBodies * kLargeParamBytes;

  void SetUp() override {
    ASSERT_TRUE(tenant_->LoadKernel(1, 1, "k", kEmptyPtx));
    ASSERT_TRUE(tenant_->LoadKernel(2, 2, "large", kEmptyPtx));
  }
  TestingGraph Kernels(bool large) const {
    TestingGraph graph;
    for (uint32_t i = 0; i < kNodes; ++i) {
      large ? graph.AddKernel(2, params_) : graph.AddKernel(1, PlainParams());
    }
    return graph;
  }
  // Of a definition or an update in the arena.
  template <typename C>
  std::optional<CUresult> Send(uint32_t graph, const TestingGraph& definition) {
    const std::vector<uint8_t> block = definition.Block();
    const HostPtr address{tenant_->order.host_range_begin + (1u << 20)};
    std::memcpy(reinterpret_cast<void*>(address), block.data(), block.size());
    return tenant_->Call<C>({GraphId{graph}, 0, address, block.size()});
  }

  const std::vector<uint8_t> params_ = std::vector<uint8_t>(kLargeParamBytes);
  const Driver& driver_ = TestingDriver::Reset();
  TestingScheduler scheduler_{driver_, true, -1, 4 * kSessionBytes};
  std::unique_ptr<TestingTenant> tenant_ = scheduler_.AddTenant();
};

// The driver keeps them in the graph and in the executable graph.
TEST_F(GraphBudgetTest, Malicious_ParametersWithoutEnd) {
  uint32_t made = 0;
  while (made < 20 && Send<wire::GraphInstantiate>(made + 1, Kernels(true)) == CUDA_SUCCESS) ++made;
  EXPECT_GT(made, 0u);
  EXPECT_LE(made * kKeptBytes, kSessionBytes);
  for (uint32_t i = 1; i <= made; ++i) tenant_->Post<wire::GraphDestroy>({GraphId{i}});
  EXPECT_TRUE(tenant_->Wait(
      [&] { return Send<wire::GraphInstantiate>(1, Kernels(true)) == CUDA_SUCCESS; }));
}

TEST_F(GraphBudgetTest, Malicious_UpdatesToLargerParameters) {
  uint32_t grown = 0;
  for (uint32_t id = 1; id <= 20; ++id) {
    ASSERT_EQ(Send<wire::GraphInstantiate>(id, Kernels(false)), CUDA_SUCCESS);
    const auto result = Send<wire::GraphUpdate>(id, Kernels(true));
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    ASSERT_EQ(result, CUDA_SUCCESS);
    ++grown;
  }
  EXPECT_GT(grown, 0u);
  EXPECT_LE(grown * kKeptBytes, kSessionBytes);
}

// The driver's graph of a reservation outlives the executable one that was made with it.
TEST_F(GraphBudgetTest, Malicious_ReservationsKeepParameters) {
  uint32_t kept = 0;
  for (uint32_t id = 1; id <= 20; ++id) {
    ASSERT_EQ(tenant_->Call<wire::ConditionCreate>({wire::ReservationId{id}, 0, 0, 0}),
              CUDA_SUCCESS);
    TestingGraph graph = Kernels(true);
    graph.AddConditional(id, 0, CU_GRAPH_COND_TYPE_IF, {0});
    const auto result = Send<wire::GraphInstantiate>(1, graph);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) break;
    ASSERT_EQ(result, CUDA_SUCCESS);
    ++kept;
    tenant_->Post<wire::GraphDestroy>({GraphId{1}});
  }
  EXPECT_GT(kept, 0u);
  EXPECT_LE(kept * kNodes * kLargeParamBytes, kSessionBytes);
}

// Memory of the node's, which definitions out of holes in the arena cost the tenant nothing of.
TEST(GraphBudget, Malicious_ADefinitionBeyondWhatASessionMayCost) {
  const Driver& driver = TestingDriver::Reset();
  TestingScheduler scheduler(driver, true, -1, uint64_t{64} << 20);  // a session's: 16 MiB
  const auto tenant = scheduler.AddTenant();
  const HostPtr hole{tenant->order.host_range_begin};
  EXPECT_EQ(tenant->Call<wire::GraphInstantiate>({GraphId{1}, 0, hole, 16u << 20}),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(tenant->reader.fatal(), Fatal::kNone);
  const auto honest = scheduler.AddTenant();
  ASSERT_TRUE(honest->LoadKernel(1, 1, "k", kEmptyPtx));
  EXPECT_TRUE(honest->WaitDone(0, honest->LaunchPlain(0, 1)));
}

}  // namespace
}  // namespace gpuloom::executor
