// SPDX-License-Identifier: Apache-2.0
// Graphs and nodes are named by their serials, which no two ever share: what is inside of a node
// needs no prefix.
#include "proto/libcuda/graph/dot.h"

#include <stdio.h>

namespace gpuloom::graph {
namespace {

const char* NameOf(CUgraphNodeType type) {
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return "KERNEL";
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return "MEMCPY";
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return "MEMSET";
    case CU_GRAPH_NODE_TYPE_HOST:
      return "HOST";
    case CU_GRAPH_NODE_TYPE_GRAPH:
      return "GRAPH";
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return "EMPTY";
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return "EVENT_WAIT";
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return "EVENT_RECORD";
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      return "MEM_ALLOC";
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return "MEM_FREE";
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      return "BATCH_MEM_OP";
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return "CONDITIONAL";
    default:
      return "OTHER";
  }
}

// VERBOSE asks for all details.
bool Wants(unsigned flags, unsigned flag) {
  return (flags & (flag | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE)) != 0;
}

// uint64_t is unsigned long here, which %llu does not take.
unsigned long long Number(uint64_t value) { return value; }

void PrintDetails(FILE* file, const NodeParams& params, unsigned flags) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_KERNEL_NODE_PARAMS)) return;
      fprintf(file, "\\nfunction %p\\n<<<(%u,%u,%u),(%u,%u,%u),%u>>>", params.kernel.handle(),
              params.kernel.grid[0], params.kernel.grid[1], params.kernel.grid[2],
              params.kernel.block[0], params.kernel.block[1], params.kernel.block[2],
              params.kernel.dynamic_shared_bytes);
      return;
    case CU_GRAPH_NODE_TYPE_MEMCPY: {
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEMCPY_NODE_PARAMS)) return;
      const CUDA_MEMCPY3D& copy = params.memcpy.copy;
      fprintf(file, "\\n%zu x %zu x %zu bytes", copy.WidthInBytes, copy.Height, copy.Depth);
      return;
    }
    case CU_GRAPH_NODE_TYPE_MEMSET:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_MEMSET_NODE_PARAMS)) return;
      fprintf(file, "\\n0x%llx = 0x%x, %zu x %zu elements of %u", Number(params.memset.dst),
              params.memset.value, params.memset.width, params.memset.height,
              params.memset.elementSize);
      return;
    case CU_GRAPH_NODE_TYPE_HOST:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_HOST_NODE_PARAMS)) return;
      fprintf(file, "\\nfunction %p\\ndata %p", reinterpret_cast<void*>(params.host.fn),
              params.host.userData);
      return;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_EVENT_NODE_PARAMS)) return;
      fprintf(file, "\\nevent %p", static_cast<void*>(params.event));
      return;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_BATCH_MEM_OP_NODE_PARAMS)) return;
      fprintf(file, "\\n%u operations", params.batch.count);
      return;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      if (!Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_CONDITIONAL_NODE_PARAMS)) return;
      fprintf(file, "\\nhandle %llu\\ntype %d\\n%u bodies", Number(params.conditional.handle),
              static_cast<int>(params.conditional.kind), params.conditional.count);
      return;
    default:
      return;
  }
}

void PrintGraph(FILE* file, const Graph& graph, unsigned flags) {
  fprintf(file, "subgraph cluster_%llu {\nlabel=\"graph_%llu\"\n", Number(graph.serial),
          Number(graph.serial));
  for (const Node* node : graph.nodes) {
    fprintf(file, "\"node_%llu\" [shape=\"record\" label=\"%llu\\n%s", Number(node->serial),
            Number(node->serial), NameOf(node->params.type));
    if (Wants(flags, CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES)) {
      fprintf(file, "\\nnode %p", static_cast<const void*>(node));
    }
    PrintDetails(file, node->params, flags);
    fprintf(file, "\"]\n");
  }
  for (const Node* node : graph.nodes) {
    for (const Edge& edge : node->out) {
      fprintf(file, "\"node_%llu\" -> \"node_%llu\"\n", Number(node->serial),
              Number(edge.node->serial));
    }
  }
  // Behind the cluster, so that the graphs of nodes are clusters beside it.
  fprintf(file, "}\n");
  for (const Node* node : graph.nodes) {
    ForEachInner(*node, [&](const Graph* inner) { PrintGraph(file, *inner, flags); });
  }
}

}  // namespace

bool PrintDot(const Graph& graph, const char* path, unsigned flags) {
  // Close-on-exec: a program that forks meanwhile does not pass it on.
  FILE* file = fopen(path, "we");
  if (file == nullptr) return false;
  fprintf(file, "digraph dot {\n");
  PrintGraph(file, graph, flags);
  fprintf(file, "}\n");
  return fclose(file) == 0;
}

}  // namespace gpuloom::graph
