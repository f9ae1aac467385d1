// SPDX-License-Identifier: Apache-2.0
// Finds out which nodes of a definition belong together: the graph's own, and those of each body of its conditional
// nodes. They form a tree: bodies come after the node that has them.
//
// For the executor's side. Reads a definition that GraphReader::Parse has accepted and that is used only during Read.
// Not thread-safe while Read runs; const use is safe from any thread afterwards.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::wire {

struct GraphScope {
  uint32_t owner;  // the conditional node, or kNoGraphNode
  uint32_t first;  // node
  uint32_t nodes;
  uint32_t depth;  // 0: the graph's own
};

class GraphScopes {
 public:
  // False if the bodies are not the nodes after their owners, contain what no body may, are nested
  // too deep, or an edge leads from one into another.
  [[nodiscard]] bool Read(const GraphReader& reader) {
    scopes_.clear();
    scope_of_.clear();
    uint64_t in_bodies = 0;
    uint64_t bodies = 0;
    for (uint32_t i = 0; i < reader.nodes(); ++i) {
      const GraphNode node = reader.Node(i);
      const uint32_t count = reader.Bodies(node);
      bodies += count;
      if (bodies > kMaxGraphNodes) return false;
      for (uint32_t k = 0; k < count; ++k) in_bodies += reader.BodyNodes(node, k);
    }
    if (in_bodies > reader.nodes()) return false;
    const auto own = static_cast<uint32_t>(reader.nodes() - in_bodies);
    scopes_.push_back({kNoGraphNode, 0, own, 0});
    if (bodies == 0) return true;
    return Assign(reader, own) && EdgesStay(reader);
  }

  const std::vector<GraphScope>& scopes() const { return scopes_; }
  // An index into scopes().
  uint32_t ScopeOf(uint32_t node) const { return scope_of_.empty() ? 0 : scope_of_[node]; }

 private:
  bool Assign(const GraphReader& reader, uint32_t next) {
    scope_of_.resize(reader.nodes());
    size_t current = 0;
    for (uint32_t i = 0; i < reader.nodes(); ++i) {
      while (current < scopes_.size() && i >= scopes_[current].first + scopes_[current].nodes) {
        ++current;
      }
      // A body whose owner would be in or after it.
      if (current == scopes_.size()) return false;
      scope_of_[i] = static_cast<uint32_t>(current);
      const uint32_t depth = scopes_[current].depth;
      const GraphNode node = reader.Node(i);
      if (depth != 0 && !MayBeInBody(node.kind)) return false;
      const uint32_t count = reader.Bodies(node);
      if (count != 0 && depth == kMaxGraphDepth) return false;
      for (uint32_t k = 0; k < count; ++k) {
        const uint32_t nodes = reader.BodyNodes(node, k);
        scopes_.push_back({i, next, nodes, depth + 1});
        next += nodes;  // at most all nodes: see Read
      }
    }
    return true;
  }
  bool EdgesStay(const GraphReader& reader) const {
    for (uint32_t i = 0; i < reader.edges(); ++i) {
      const GraphEdge edge = reader.Edge(i);
      if (scope_of_[edge.from] != scope_of_[edge.to]) return false;
    }
    return true;
  }
  static constexpr bool MayBeInBody(GraphNodeKind kind) {
    return kind == GraphNodeKind::kEmpty || kind == GraphNodeKind::kKernel ||
           kind == GraphNodeKind::kCopy || kind == GraphNodeKind::kFill ||
           kind == GraphNodeKind::kConditional;
  }

  std::vector<GraphScope> scopes_;  // by their first nodes
  std::vector<uint32_t> scope_of_;  // by node; empty if there is only one
};

}  // namespace gpuloom::wire
