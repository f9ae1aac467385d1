// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_width.h"

#include <gtest/gtest.h>

#include "agent/executor/testing/graph.h"

namespace gpuloom::executor {
namespace {

using Edges = std::vector<std::pair<uint32_t, uint32_t>>;

constexpr uint32_t kWide = kManyGraphNodes + 1000;

Edges AddedTo(
    const TestingGraph& graph, const std::function<std::optional<uint64_t>(uint32_t)>& part =
                                   [](uint32_t) { return std::optional<uint64_t>(0); }) {
  const std::vector<uint8_t> block = graph.Block();
  wire::GraphReader reader;
  EXPECT_TRUE(reader.Parse(block, wire::GraphReader::Form::kDefinition));
  return EdgesAgainstWidth(reader, part);
}

uint64_t Branches(const TestingGraph& graph) {
  const std::vector<uint8_t> block = graph.Block();
  wire::GraphReader reader;
  wire::GraphScopes scopes;
  EXPECT_TRUE(reader.Parse(block, wire::GraphReader::Form::kDefinition) && scopes.Read(reader));
  return BranchesOf(reader, scopes, CutIntoSections(reader, scopes));
}

TestingGraph Nodes(uint32_t count) {
  TestingGraph graph;
  for (uint32_t i = 0; i < count; ++i) graph.AddEmpty();
  return graph;
}

TEST(GraphWidth, FewNodesStayAsTheyAre) {
  EXPECT_TRUE(AddedTo(Nodes(kManyGraphNodes - 1)).empty());
}

TEST(GraphWidth, OfNodesSideBySideEachIsBehindAnEarlierOne) {
  const Edges added = AddedTo(Nodes(kWide));
  ASSERT_EQ(added.size(), kWide - kMostNodesSideBySide);
  for (const auto& [from, to] : added) EXPECT_EQ(from + kMostNodesSideBySide, to);
}

TEST(GraphWidth, AChainIsNotWide) {
  TestingGraph graph = Nodes(kWide);
  for (uint32_t i = 1; i < kWide; ++i) graph.AddEdge(i - 1, i);
  EXPECT_TRUE(AddedTo(graph).empty());
}

TEST(GraphWidth, WhatIsBehindOneNodeIsSideBySide) {
  TestingGraph graph = Nodes(kWide);
  for (uint32_t i = 1; i < kWide; ++i) graph.AddEdge(0, i);
  const Edges added = AddedTo(graph);
  ASSERT_EQ(added.size(), kWide - 1 - kMostNodesSideBySide);
  EXPECT_EQ(added.front(), std::make_pair(1u, 1 + kMostNodesSideBySide));
}

TEST(GraphWidth, PartsAreGraphsOfTheirOwnAndSomeNodesAreInNone) {
  const Edges added = AddedTo(Nodes(kWide), [](uint32_t node) -> std::optional<uint64_t> {
    if (node < 2000) return std::nullopt;
    return node % 2;
  });
  ASSERT_EQ(added.size(), kWide - 2000 - 2 * kMostNodesSideBySide);
  for (const auto& [from, to] : added) {
    EXPECT_GE(from, 2000u);
    EXPECT_EQ(from + 2 * kMostNodesSideBySide, to);
  }
}

TEST(GraphWidth, HeadsAreWhatCanBeginAtOnce) {
  const auto heads = [](const TestingGraph& graph) {
    const std::vector<uint8_t> block = graph.Block();
    wire::GraphReader reader;
    wire::GraphScopes scopes;
    EXPECT_TRUE(reader.Parse(block, wire::GraphReader::Form::kDefinition) && scopes.Read(reader));
    return HeadsOf(reader, scopes);
  };
  const auto add_fill = [](TestingGraph* graph) { graph->AddFill(4096, 1, 1, 1, 0); };
  EXPECT_EQ(heads(Nodes(100)), 0u);
  TestingGraph graph;
  for (int i = 0; i < 8; ++i) add_fill(&graph);
  EXPECT_EQ(heads(graph), 8u);
  graph.AddEmpty();  // 8: behind one of them, and before what comes then
  graph.AddEdge(7, 8);
  for (uint32_t i = 9; i < 20; ++i) {
    add_fill(&graph);
    graph.AddEdge(8, i);
  }
  EXPECT_EQ(heads(graph), 8u);
  TestingGraph fan;
  fan.AddEmpty();
  for (uint32_t i = 1; i < 12; ++i) {
    add_fill(&fan);
    fan.AddEdge(0, i);
  }
  EXPECT_EQ(heads(fan), 11u) << "what is empty keeps nothing waiting";
}

TEST(GraphWidth, ABranchIsWhatIsSideBySide) {
  EXPECT_EQ(Branches(Nodes(0)), 0u);
  EXPECT_EQ(Branches(Nodes(1)), 1u);
  EXPECT_EQ(Branches(Nodes(100)), 100u);
  EXPECT_EQ(Branches(Nodes(kWide)), kMostNodesSideBySide);
  TestingGraph chain = Nodes(100);
  for (uint32_t i = 1; i < 100; ++i) chain.AddEdge(i - 1, i);
  EXPECT_EQ(Branches(chain), 1u);
  // Ten times one node, eight behind it, and all of them before the next one.
  TestingGraph forks = Nodes(91);
  for (uint32_t fork = 0; fork < 90; fork += 9) {
    for (uint32_t i = fork + 1; i < fork + 9; ++i) {
      forks.AddEdge(fork, i);
      forks.AddEdge(i, fork + 9);
    }
  }
  EXPECT_EQ(Branches(forks), 8u);
}

}  // namespace
}  // namespace gpuloom::executor
