// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_waits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

bool WaitsForValue(const wire::GraphReader& reader, const wire::GraphNode& node) {
  if (node.kind != GraphNodeKind::kMemoryOperations) return false;
  for (uint32_t i = 0; i < reader.Operations(node); ++i) {
    const uint32_t operation = reader.Operation(node, i).operation;
    if (operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
        operation == CU_STREAM_MEM_OP_WAIT_VALUE_64) {
      return true;
    }
  }
  return false;
}

// Nodes that wait are put into rows in which each comes behind the one before it, so that of a row one
// waits at a time. A node knows how far along each row it is behind what stands there.
uint32_t WaitsAtOnce(const wire::GraphReader& reader) {
  bool any = false;
  for (uint32_t i = 0; i < reader.nodes() && !any; ++i) {
    any = WaitsForValue(reader, reader.Node(i));
  }
  if (!any) return 0;

  std::vector<uint32_t> first_edge(reader.nodes() + 1);  // of those into a node
  for (uint32_t i = 0; i < reader.edges(); ++i) ++first_edge[reader.Edge(i).to + 1];
  for (uint32_t i = 0; i < reader.nodes(); ++i) first_edge[i + 1] += first_edge[i];
  std::vector<uint32_t> from(reader.edges());
  std::vector<uint32_t> next = first_edge;
  for (uint32_t i = 0; i < reader.edges(); ++i) {
    const wire::GraphEdge edge = reader.Edge(i);
    from[next[edge.to]++] = edge.from;
  }

  using Along = std::array<uint32_t, kMostGraphWaits>;
  std::vector<Along> along(reader.nodes(), Along{});
  Along length{};
  uint32_t rows = 0;
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    Along& mine = along[i];
    for (uint32_t edge = first_edge[i]; edge < first_edge[i + 1]; ++edge) {
      const Along& before = along[from[edge]];
      for (uint32_t row = 0; row < rows; ++row) mine[row] = std::max(mine[row], before[row]);
    }
    if (!WaitsForValue(reader, reader.Node(i))) continue;
    uint32_t row = 0;
    while (row < rows && mine[row] != length[row]) ++row;
    if (row == rows && ++rows > kMostGraphWaits) return rows;
    mine[row] = ++length[row];
  }
  return rows;
}

}  // namespace gpuloom::executor
