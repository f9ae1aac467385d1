// SPDX-License-Identifier: Apache-2.0
// A definition's edges, by their source node. Edges lead from lower to higher nodes, but are stored
// in no particular order. Plain value; any thread. The definition must have been validated; it is
// read by the constructor only.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

class EdgesOut {
 public:
  explicit EdgesOut(const wire::GraphReader& reader)
      : first_(reader.nodes() + 1), to_(reader.edges()) {
    for (uint32_t i = 0; i < reader.edges(); ++i) ++first_[reader.Edge(i).from + 1];
    for (uint32_t i = 0; i < reader.nodes(); ++i) first_[i + 1] += first_[i];
    std::vector<uint32_t> next = first_;
    for (uint32_t i = 0; i < reader.edges(); ++i) {
      const wire::GraphEdge edge = reader.Edge(i);
      to_[next[edge.from]++] = edge.to;
    }
  }
  // Calls `f` for each node that an edge leads to.
  template <typename F>
  void ForEach(uint32_t node, F f) const {
    for (uint32_t i = first_[node]; i < first_[node + 1]; ++i) f(to_[i]);
  }

 private:
  std::vector<uint32_t> first_;
  std::vector<uint32_t> to_;
};

}  // namespace gpuloom::executor
