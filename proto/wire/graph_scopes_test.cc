// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/graph_scopes.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuloom::wire {
namespace {

// A definition of empty nodes, of which some have bodies.
class Nodes {
 public:
  uint32_t Add(GraphNodeKind kind = GraphNodeKind::kEmpty, uint32_t body_bytes = 0) {
    const auto i = static_cast<uint32_t>(nodes_.size());
    nodes_.push_back({i, kind, 0, 0, body_bytes});
    bodies_.emplace_back(body_bytes);
    return i;
  }
  uint32_t AddConditional(const std::vector<uint32_t>& node_counts) {
    const auto count = static_cast<uint32_t>(node_counts.size());
    const auto bytes = static_cast<uint32_t>(sizeof(GraphConditional) + count * sizeof(uint32_t));
    const uint32_t i = Add(GraphNodeKind::kConditional, bytes);
    const GraphConditional head{ReservationId{1}, 0, 0, count};
    std::memcpy(bodies_[i].data(), &head, sizeof(head));
    if (count != 0) {
      std::memcpy(bodies_[i].data() + sizeof(head), node_counts.data(), count * sizeof(uint32_t));
    }
    return i;
  }
  void Edge(uint32_t from, uint32_t to) { edges_.push_back({from, to, 0, 0, 0, {}}); }
  // Says another number of bodies than there are.
  void SayBodies(uint32_t node, uint32_t bodies) {
    std::memcpy(bodies_[node].data() + offsetof(GraphConditional, bodies), &bodies, sizeof(bodies));
  }

  std::vector<uint8_t> Block() const {
    const auto nodes = static_cast<uint32_t>(nodes_.size());
    const auto edges = static_cast<uint32_t>(edges_.size());
    std::vector<uint8_t> block(GraphBodiesOffset(nodes, edges));
    for (uint32_t i = 0; i < nodes; ++i) {
      GraphNode node = nodes_[i];
      if (node.body_bytes != 0) {
        node.body_offset = static_cast<uint32_t>(RoundUpToGraphBody(block.size()));
        block.resize(node.body_offset);
        block.insert(block.end(), bodies_[i].begin(), bodies_[i].end());
      }
      std::memcpy(block.data() + sizeof(GraphHead) + i * sizeof(node), &node, sizeof(node));
    }
    for (uint32_t i = 0; i < edges; ++i) {
      std::memcpy(block.data() + GraphEdgesOffset(nodes) + i * sizeof(GraphEdge), &edges_[i],
                  sizeof(GraphEdge));
    }
    const GraphHead head{nodes, edges, block.size()};
    std::memcpy(block.data(), &head, sizeof(head));
    return block;
  }

 private:
  std::vector<GraphNode> nodes_;
  std::vector<std::vector<uint8_t>> bodies_;
  std::vector<GraphEdge> edges_;
};

// Well formed, whatever its scopes are.
bool Reads(const Nodes& nodes, GraphScopes* scopes) {
  const std::vector<uint8_t> block = nodes.Block();
  GraphReader reader;
  EXPECT_TRUE(reader.Parse(block, GraphReader::Form::kDefinition));
  return scopes->Read(reader);
}
bool Reads(const Nodes& nodes) {
  GraphScopes scopes;
  return Reads(nodes, &scopes);
}
bool Parses(const Nodes& nodes, GraphReader::Form form = GraphReader::Form::kDefinition) {
  const std::vector<uint8_t> block = nodes.Block();
  return GraphReader().Parse(block, form);
}

TEST(GraphScopes, WithoutBodiesThereIsOne) {
  Nodes nodes;
  nodes.Add();
  nodes.Edge(0, nodes.Add());
  GraphScopes scopes;
  ASSERT_TRUE(Reads(nodes, &scopes));
  ASSERT_EQ(scopes.scopes().size(), 1u);
  EXPECT_EQ(scopes.scopes()[0].nodes, 2u);
  EXPECT_EQ(scopes.ScopeOf(1), 0u);
}

TEST(GraphScopes, BodiesComeInTheOrderOfTheirOwners) {
  Nodes nodes;
  nodes.AddConditional({2, 0, 1});  // 0; bodies: 2 and 3, none, 4
  nodes.AddConditional({1});        // 1; body: 5
  nodes.Add();
  nodes.AddConditional({2});  // 3; body: 6 and 7
  for (int i = 0; i < 4; ++i) nodes.Add();
  nodes.Edge(0, 1);
  nodes.Edge(2, 3);
  nodes.Edge(6, 7);
  GraphScopes scopes;
  ASSERT_TRUE(Reads(nodes, &scopes));
  ASSERT_EQ(scopes.scopes().size(), 6u);
  const uint32_t of[] = {0, 0, 1, 1, 3, 4, 5, 5};
  for (uint32_t i = 0; i < 8; ++i) EXPECT_EQ(scopes.ScopeOf(i), of[i]) << i;
  EXPECT_EQ(scopes.scopes()[2].nodes, 0u);
  EXPECT_EQ(scopes.scopes()[5].owner, 3u);
  EXPECT_EQ(scopes.scopes()[5].depth, 2u);
}

TEST(GraphScopes, Malicious_MoreNodesThanThereAre) {
  for (const uint32_t huge : {2u, 3u, UINT32_MAX}) {
    Nodes nodes;
    nodes.AddConditional({huge});
    nodes.Add();
    EXPECT_FALSE(Reads(nodes)) << huge;
  }
  Nodes wraps;
  wraps.AddConditional({UINT32_MAX, 2});
  wraps.Add();
  EXPECT_FALSE(Reads(wraps));
}

TEST(GraphScopes, Malicious_ABodyInItself) {
  Nodes itself;
  itself.AddConditional({1});
  EXPECT_FALSE(Reads(itself));
  Nodes circle;  // each in the other's body
  circle.AddConditional({1});
  circle.AddConditional({1});
  EXPECT_FALSE(Reads(circle));
}

TEST(GraphScopes, Malicious_EdgesBetweenBodies) {
  Nodes into;
  into.AddConditional({1});
  into.Edge(0, into.Add());
  EXPECT_FALSE(Reads(into));
  Nodes across;
  across.AddConditional({1, 1});
  across.Add();
  across.Edge(1, across.Add());
  EXPECT_FALSE(Reads(across));
}

TEST(GraphScopes, Malicious_WhatNoBodyHolds) {
  for (const auto kind : {GraphNodeKind::kHost, GraphNodeKind::kEventRecord,
                          GraphNodeKind::kEventWait, GraphNodeKind::kMemoryOperations}) {
    Nodes nodes;
    nodes.AddConditional({1});
    nodes.Add(kind, GraphBodyBytes(kind));
    EXPECT_FALSE(Reads(nodes)) << static_cast<int>(kind);
  }
}

TEST(GraphScopes, Malicious_TooDeep) {
  Nodes nodes;
  for (uint32_t i = 0; i < kMaxGraphDepth; ++i) nodes.AddConditional({1});
  Nodes deeper = nodes;
  nodes.Add();
  EXPECT_TRUE(Reads(nodes));
  deeper.AddConditional({1});
  deeper.Add();
  EXPECT_FALSE(Reads(deeper));
}

TEST(GraphScopes, Malicious_TooManyBodies) {
  Nodes nodes;
  const std::vector<uint32_t> empty(kMaxGraphBodies);
  for (uint32_t i = 0; i < kMaxGraphNodes / kMaxGraphBodies; ++i) nodes.AddConditional(empty);
  EXPECT_TRUE(Reads(nodes));
  nodes.AddConditional({0});
  EXPECT_FALSE(Reads(nodes));
}

TEST(GraphScopes, Malicious_BodyCounts) {
  Nodes none;
  none.AddConditional({});
  EXPECT_FALSE(Parses(none));
  Nodes many;
  many.AddConditional(std::vector<uint32_t>(kMaxGraphBodies + 1));
  EXPECT_FALSE(Parses(many));
  for (const uint32_t said : {1u, 3u, UINT32_MAX}) {
    Nodes others;
    others.AddConditional({0, 0});
    others.SayBodies(0, said);
    EXPECT_FALSE(Parses(others)) << said;
  }
}

TEST(GraphScopes, Malicious_UpdatesOfConditionalNodes) {
  Nodes nodes;
  nodes.AddConditional({0});
  EXPECT_FALSE(Parses(nodes, GraphReader::Form::kUpdate));
  Nodes flags;
  flags.Add(GraphNodeKind::kConditional);
  EXPECT_FALSE(Parses(flags, GraphReader::Form::kUpdate));
}

}  // namespace
}  // namespace gpuloom::wire
