// SPDX-License-Identifier: Apache-2.0
// Shared by the graph entry points: resolves handles and lists of dependencies. Needs GraphLock.
#pragma once

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// A list that frees itself.
struct EdgeList {
  Growing<Edge> edges;
  EdgeList() = default;
  ~EdgeList() { edges.Free(); }
  EdgeList(const EdgeList&) = delete;
  EdgeList& operator=(const EdgeList&) = delete;

  // Live nodes of `graph`, without duplicates; INVALID_VALUE otherwise.
  [[nodiscard]] CUresult Read(const Graph* graph, const CUgraphNode* nodes,
                              const CUgraphEdgeData* data, size_t count) {
    if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
    const uint64_t mark = NewMark();
    for (size_t i = 0; i < count; ++i) {
      Node* node = FindNode(nodes[i]);
      if (node == nullptr || node->graph != graph || node->mark == mark) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      node->mark = mark;
      if (data != nullptr && !IsEdgeData(*node, data[i])) return CUDA_ERROR_INVALID_VALUE;
      if (!edges.Push({node, data != nullptr ? data[i] : CUgraphEdgeData{}})) {
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
    return CUDA_SUCCESS;
  }

  // Only kernels have ports, and only on the side that is waited for (`from`).
  static bool IsEdgeData(const Node& from, const CUgraphEdgeData& data) {
    for (const unsigned char reserved : data.reserved) {
      if (reserved != 0) return false;
    }
    if (data.to_port != 0 || data.type > CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC ||
        data.from_port > CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER) {
      return false;
    }
    return (data.from_port == 0 && data.type == 0) || from.params.type == CU_GRAPH_NODE_TYPE_KERNEL;
  }
};

// The live node of that kind; null otherwise.
inline Node* FindNode(CUgraphNode handle, CUgraphNodeType type) {
  Node* node = FindNode(handle);
  return node != nullptr && node->params.type == type ? node : nullptr;
}

}  // namespace gpuloom::graph
