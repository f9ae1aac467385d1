// SPDX-License-Identifier: Apache-2.0
// The rules of conditional nodes that do not need the driver. Making and dropping handles is the
// library's.
#include "proto/libcuda/graph/conditional.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"

namespace gpuloom::graph {
namespace {

// IF has a second body for a value of zero; SWITCH has one per value.
bool IsCount(CUgraphConditionalNodeType kind, unsigned count) {
  switch (kind) {
    case CU_GRAPH_COND_TYPE_IF:
      return count == 1 || count == 2;
    case CU_GRAPH_COND_TYPE_WHILE:
      return count == 1;
    case CU_GRAPH_COND_TYPE_SWITCH:
      return count != 0;
    default:
      return false;
  }
}

// How many conditional nodes the graph is inside of, through child graphs as well.
uint32_t DepthOf(const Graph* graph) {
  uint32_t depth = 0;
  for (; graph->owner != nullptr; graph = graph->owner->graph) {
    depth += graph->owner->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL ? 1 : 0;
  }
  return depth;
}

// The bodies of a conditional node are not looked into here: FindUnfitInBodies visits them itself.
bool RunsInBody(const NodeParams& params) {
  switch (params.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_EMPTY:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return true;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      for (const Node* node : params.child.graph->nodes) {
        if (!RunsInBody(node->params)) return false;
      }
      return true;
    default:
      return false;
  }
}

}  // namespace

CUresult MakeCondition(Graph* root, CUcontext context, unsigned default_value, unsigned flags,
                       CUgraphConditionalHandle* handle) {
  // A new reservation would not know the earlier handles, and the driver counts handles per graph.
  if (root->conditions.count() != 0 && root->reservation == nullptr) {
    return CUDA_ERROR_CONTEXT_IS_DESTROYED;
  }
  Condition condition = {0, context, false};
  CUDA_RETURN_IF_ERROR(DriverMakeCondition(root, default_value, flags, &condition.handle));
  // The driver keeps the handle then, unused, until the graph ends.
  if (!root->conditions.Push(condition)) return CUDA_ERROR_OUT_OF_MEMORY;
  *handle = condition.handle;
  return CUDA_SUCCESS;
}

Condition* FindCondition(Graph* root, CUgraphConditionalHandle handle) {
  for (Condition& condition : root->conditions) {
    if (condition.handle == handle) return &condition;
  }
  return nullptr;
}

CUresult ReadConditional(const CUgraphNodeParams& from, Graph* graph, NodeParams* to) {
  *to = {};
  const CUDA_CONDITIONAL_NODE_PARAMS& asked = from.conditional;
  Condition* condition = FindCondition(RootOf(graph), asked.handle);
  // A handle belongs to one graph and one node, and its context is the node's.
  if (from.reserved0[0] != 0 || from.reserved0[1] != 0 || from.reserved0[2] != 0 ||
      from.reserved2 != 0 || condition == nullptr || condition->used ||
      !IsCount(asked.type, asked.size) ||
      (asked.ctx != nullptr && asked.ctx != condition->context)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (asked.size > kMaxBodies || DepthOf(graph) >= kMaxConditionDepth) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  to->type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  ConditionalParams& params = to->conditional;
  params = {asked.handle, asked.type, asked.size, nullptr, condition->context};
  // Bodies begin without an owner; they get it when the node is added.
  params.bodies = static_cast<Graph**>(calloc(asked.size, sizeof(Graph*)));
  bool room = params.bodies != nullptr;
  for (uint32_t i = 0; room && i < asked.size; ++i) {
    params.bodies[i] = MakeGraph();
    room = params.bodies[i] != nullptr;
  }
  if (!room) {
    FreeParams(to);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

bool IsBody(const Graph* graph) { return DepthOf(graph) != 0; }

Node* FindUnfitInBodies(const Graph* graph) {
  for (Node* node : graph->nodes) {
    if (IsBody(graph) && !RunsInBody(node->params)) return node;
    Node* unfit = nullptr;
    ForEachInner(*node, [&](const Graph* inner) {
      if (unfit == nullptr) unfit = FindUnfitInBodies(inner);
    });
    if (unfit != nullptr) return unfit;
  }
  return nullptr;
}

bool HasConditions(const Graph* graph) {
  bool has = graph->conditions.count() != 0;
  for (const Node* node : graph->nodes) {
    has = has || node->params.type == CU_GRAPH_NODE_TYPE_CONDITIONAL;
    ForEachInner(*node, [&has](const Graph* inner) { has = has || HasConditions(inner); });
  }
  return has;
}

}  // namespace gpuloom::graph
