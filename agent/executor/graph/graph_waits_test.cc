// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_waits.h"

#include <gtest/gtest.h>

#include "agent/executor/testing/graph.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {
namespace {

constexpr wire::GraphMemoryOperation kWait{CU_STREAM_MEM_OP_WAIT_VALUE_32, 0, 4096, 1};
constexpr wire::GraphMemoryOperation kWrite{CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 4096, 1};

uint32_t Waits(const TestingGraph& graph) {
  wire::GraphReader reader;
  const std::vector<uint8_t> block = graph.Block();
  EXPECT_TRUE(reader.Parse(block, wire::GraphReader::Form::kDefinition));
  return WaitsAtOnce(reader);
}

TEST(GraphWaits, NothingWaits) {
  TestingGraph graph;
  EXPECT_EQ(Waits(graph), 0u);
  for (int i = 0; i < 20; ++i) graph.AddOperation(kWrite);
  EXPECT_EQ(Waits(graph), 0u);
}

TEST(GraphWaits, HostCallsAreNoneOfTheDevices) {
  TestingGraph graph;
  graph.AddOperation(kWait);
  for (int i = 0; i < 20; ++i) graph.AddHostCall(0);
  EXPECT_EQ(Waits(graph), 1u);
}

TEST(GraphWaits, OneBehindTheOtherIsOne) {
  TestingGraph graph;
  for (uint32_t i = 0; i < 1000; i += 2) {
    graph.AddOperation(kWait);
    graph.AddEmpty();
    if (i != 0) graph.AddEdge(i - 1, i);
    graph.AddEdge(i, i + 1);
  }
  EXPECT_EQ(Waits(graph), 1u);
}

TEST(GraphWaits, BranchesCountEach) {
  TestingGraph graph;
  graph.AddEmpty();
  // Three branches of two waits each, which meet, and one wait behind all.
  for (uint32_t i = 1; i <= 6; ++i) {
    graph.AddOperation(kWait);
    graph.AddEdge(i <= 3 ? 0 : i - 3, i);
  }
  graph.AddOperation(kWait);
  for (uint32_t i = 4; i <= 6; ++i) graph.AddEdge(i, 7);
  EXPECT_EQ(Waits(graph), 3u);
}

TEST(GraphWaits, TooManyAreNotCounted) {
  TestingGraph graph;
  for (uint32_t i = 0; i < 1000; ++i) graph.AddOperation(kWait);
  EXPECT_EQ(Waits(graph), kMostGraphWaits + 1);
}

}  // namespace
}  // namespace gpuloom::executor
