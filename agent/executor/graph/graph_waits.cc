// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_waits.h"

#include <algorithm>
#include <array>
#include <vector>

#include "agent/executor/graph/graph_edges.h"
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

  const EdgesOut edges(reader);
  using Along = std::array<uint32_t, kMostGraphWaits>;
  std::vector<Along> along(reader.nodes(), Along{});
  Along length{};
  uint32_t rows = 0;
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    Along& mine = along[i];
    if (WaitsForValue(reader, reader.Node(i))) {
      uint32_t row = 0;
      while (row < rows && mine[row] != length[row]) ++row;
      if (row == rows && ++rows > kMostGraphWaits) return rows;
      mine[row] = ++length[row];
    }
    edges.ForEach(i, [&](uint32_t to) {
      for (uint32_t row = 0; row < rows; ++row) {
        along[to][row] = std::max(along[to][row], mine[row]);
      }
    });
  }
  return rows;
}

}  // namespace gpuloom::executor
