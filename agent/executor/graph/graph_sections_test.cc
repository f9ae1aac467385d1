// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_sections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "agent/executor/testing/graph.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {
namespace {

using ::testing::ElementsAre;

constexpr uint8_t kNoParams[1] = {};
constexpr wire::GraphMemoryOperation kWait{CU_STREAM_MEM_OP_WAIT_VALUE_32, 0, 4096, 1};
constexpr wire::GraphMemoryOperation kWrite{CU_STREAM_MEM_OP_WRITE_VALUE_32, 0, 4096, 1};

GraphSections Cut(const TestingGraph& graph) {
  const std::vector<uint8_t> block = graph.Block();
  wire::GraphReader reader;
  wire::GraphScopes scopes;
  EXPECT_TRUE(reader.Parse(block, wire::GraphReader::Form::kDefinition));
  EXPECT_TRUE(scopes.Read(reader));
  return CutIntoSections(reader, scopes);
}

TEST(GraphSections, WithoutFunctionsThereIsOne) {
  TestingGraph graph;
  for (int i = 0; i < 3; ++i) graph.AddEmpty();
  graph.AddOperation(kWrite);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 1u);
  EXPECT_THAT(cut.of_node, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(cut.nodes, ElementsAre(4));
}

TEST(GraphSections, OfNothingThereIsOne) {
  const GraphSections cut = Cut(TestingGraph());
  EXPECT_EQ(cut.count(), 1u);
}

TEST(GraphSections, WhatAFunctionNeedsGoesBeforeItAndAllElseBehind) {
  TestingGraph graph;
  graph.AddEmpty();      // 0, needed
  graph.AddEmpty();      // 1, needed by nobody
  graph.AddHostCall(1);  // 2
  graph.AddEmpty();      // 3, needs the function
  graph.AddEdge(0, 2);
  graph.AddEdge(2, 3);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 2u);
  EXPECT_THAT(cut.of_node, ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(cut.nodes, ElementsAre(1, 2));
}

TEST(GraphSections, FunctionsThatDoNotNeedEachOtherGoTogether) {
  TestingGraph graph;
  for (int i = 0; i < 4; ++i) graph.AddHostCall(i);
  graph.AddEdge(1, 3);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 3u);
  EXPECT_THAT(cut.of_node, ElementsAre(0, 0, 0, 1));
  EXPECT_THAT(cut.nodes, ElementsAre(0, 0, 0));
}

// The value may come from a function that needs nothing of it.
TEST(GraphSections, WhatWaitsForAValueGoesBehindTheFunctionsThatDoNotNeedIt) {
  TestingGraph graph;
  graph.AddOperation(kWait);  // 0
  graph.AddHostCall(1);       // 1, needs the value
  graph.AddHostCall(2);       // 2, does not
  graph.AddEdge(0, 1);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 4u);
  EXPECT_THAT(cut.of_node, ElementsAre(1, 2, 0));
}

// … or from work that needs nothing of it, behind a function even.
TEST(GraphSections, WhatWaitsForAValueGoesBehindAllThatDoesNotNeedIt) {
  TestingGraph graph;
  graph.AddOperation(kWait);   // 0
  graph.AddEmpty();            // 1, needs the value
  graph.AddOperation(kWrite);  // 2, does not
  graph.AddHostCall(1);        // 3
  graph.AddOperation(kWrite);  // 4, needs the function
  graph.AddEdge(0, 1);
  graph.AddEdge(3, 4);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 3u);
  EXPECT_THAT(cut.of_node, ElementsAre(1, 2, 0, 0, 1));
  EXPECT_THAT(cut.nodes, ElementsAre(1, 1, 1));
}

TEST(GraphSections, ConditionsStayWithWhatSetsThem) {
  TestingGraph graph;
  graph.AddHostCall(1);           // 0
  graph.AddKernel(1, kNoParams);  // 1, sets the condition and needs no function
  graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_WHILE, {2});  // 2
  graph.AddHostCall(2);                                       // 3
  graph.AddEmpty();                                           // 4 and 5: the body
  graph.AddEmpty();
  graph.AddEdge(0, 2);
  graph.AddEdge(1, 2);
  graph.AddEdge(2, 3);
  const GraphSections cut = Cut(graph);
  EXPECT_EQ(cut.count(), 3u);
  EXPECT_THAT(cut.of_node, ElementsAre(0, 1, 1, 1, 1, 1));
  EXPECT_THAT(cut.nodes, ElementsAre(0, 4, 0));
  EXPECT_FALSE(cut.conditions_are_cut);
}

TEST(GraphSections, AFunctionBetweenAConditionAndWhatMaySetItIsSeen) {
  TestingGraph graph;
  graph.AddKernel(1, kNoParams);
  graph.AddHostCall(1);
  graph.AddConditional(1, 0, CU_GRAPH_COND_TYPE_IF, {1});
  graph.AddEmpty();
  graph.AddEdge(0, 1);
  graph.AddEdge(1, 2);
  EXPECT_TRUE(Cut(graph).conditions_are_cut);
}

// Whatever the graph: an edge never leads back, and never out of a function into its own section.
TEST(GraphSections, KeepsTheOrderOfAnyGraph) {
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    TestingGraph graph;
    const uint32_t nodes = 2 + random() % 40;
    std::vector<bool> host(nodes);
    std::vector<std::pair<uint32_t, uint32_t>> edges;
    for (uint32_t i = 0; i < nodes; ++i) {
      const uint32_t kind = random() % 5;
      host[i] = kind < 2;
      if (kind == 0) {
        graph.AddHostCall(i);
      } else if (kind == 1) {
        graph.AddOperation(kWait);
      } else {
        graph.AddEmpty();
      }
      for (uint32_t from = 0; from < i; ++from) {
        if (random() % 6 != 0) continue;
        edges.emplace_back(from, i);
      }
    }
    std::shuffle(edges.begin(), edges.end(), random);
    for (const auto& [from, to] : edges) graph.AddEdge(from, to);
    const GraphSections cut = Cut(graph);
    uint32_t counted = 0;
    for (const uint32_t count : cut.nodes) counted += count;
    EXPECT_EQ(counted, nodes - std::count(host.begin(), host.end(), true));
    for (const auto& [from, to] : edges) {
      EXPECT_LE(cut.of_node[from] + (host[from] ? 1 : 0), cut.of_node[to]) << from << " " << to;
    }
    for (uint32_t i = 0; i < nodes; ++i) {
      EXPECT_LT(cut.of_node[i] + (host[i] ? 1 : 0), cut.count());
    }
  }
}

}  // namespace
}  // namespace gpuloom::executor
