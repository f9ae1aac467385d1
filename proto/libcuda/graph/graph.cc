// SPDX-License-Identifier: Apache-2.0
// The structure of graphs: which are alive, their nodes and edges, clones, order. What nodes do is
// in node.cc, what allocation nodes share in allocation.cc.
#include "proto/libcuda/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/handle_set.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {

constinit Mutex GraphLock::mutex_;

namespace {

// All graphs and nodes of the process, executable graphs' copies included. Guarded by GraphLock.
struct Living {
  HandleSet graphs;
  HandleSet nodes;
  // Counts graphs and nodes alike; 0 stands for no original.
  uint64_t last_serial = 0;
  uint64_t last_mark = 0;
};
constinit Living living;

// The place of the first node whose serial, as `serial_of` tells it, is not below this one; nodes are in the order of
// their creation.
template <typename F>
size_t LowerBound(const Growing<Node*>& nodes, uint64_t serial, F serial_of) {
  size_t first = 0, last = nodes.count();
  while (first != last) {
    const size_t middle = first + (last - first) / 2;
    if (serial_of(*nodes[middle]) < serial) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// There is at most one edge between two nodes. The order of the others stays: queries show edges in
// the order in which they were made.
void RemoveEnd(Growing<Edge>* edges, const Node* node) {
  for (size_t i = 0; i < edges->count(); ++i) {
    if ((*edges)[i].node == node) {
      edges->Remove(i);
      return;
    }
  }
}

// One handle serves one node, so the graph at the top keeps account of which are taken.
void SetConditionUsed(Node* node, bool used) {
  if (node->params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return;
  Condition* condition = FindCondition(RootOf(node->graph), node->params.conditional.handle);
  if (condition != nullptr) condition->used = used;  // a copy in the making has none yet
}

// Does not touch the nodes at the other ends of its edges: either they are freed, too, or
// DestroyNode has seen to them. The account of its memory and condition needs node->graph and its
// owners alive.
void FreeNode(Node* node) {
  living.nodes.Remove(node);
  if (IsAllocation(node->params)) ForgetAllocation(node);
  SetConditionUsed(node, false);
  FreeParams(&node->params);
  node->in.Free();
  node->out.Free();
  free(node);
}

// A node without edges, at the end of the graph's list; takes `params` over when it succeeds.
Node* Append(Graph* graph, NodeParams* params) {
  auto* node = static_cast<Node*>(calloc(1, sizeof(Node)));
  if (node == nullptr) return nullptr;
  // What can fail comes first, so that *params stays the caller's on every failure.
  if (!living.nodes.Add(node)) {
    free(node);
    return nullptr;
  }
  if (!graph->nodes.Push(node)) {
    living.nodes.Remove(node);
    free(node);
    return nullptr;
  }
  node->graph = graph;
  node->serial = ++living.last_serial;
  node->enabled = true;
  node->params = *params;
  *params = {};
  // This is where a moved graph changes hands.
  ForEachInner(*node, [node](Graph* inner) { inner->owner = node; });
  SetConditionUsed(node, true);
  return node;
}

// Edges are copied in a second pass, because a node may depend on one that was created after it. On
// failure *to is incomplete, and the caller destroys it.
bool CopyNodes(const Graph* from, Graph* to) {
  for (uint32_t i = 0; i < from->nodes.count(); ++i) {
    Node* node = from->nodes[i];
    // The place of a node's copy in `to`.
    node->index = i;
    NodeParams params;
    if (!CopyParams(node->params, &params)) return false;
    Node* copy = Append(to, &params);
    if (copy == nullptr) {
      FreeParams(&params);
      return false;
    }
    copy->original_serial = node->serial;
  }
  // A child graph's clone has used the scratch of its own nodes only.
  for (uint32_t i = 0; i < from->nodes.count(); ++i) {
    for (const Edge& edge : from->nodes[i]->in) {
      Node* before = to->nodes[edge.node->index];
      if (!to->nodes[i]->in.Push({before, edge.data}) ||
          !before->out.Push({to->nodes[i], edge.data})) {
        return false;
      }
    }
  }
  return true;
}

// A child graph cannot get further allocation or free nodes, and what was allocated once can be freed once. Makes
// room to note what the node, or the graph that it brings along, does.
CUresult CheckAllocation(Graph* graph, const NodeParams& params) {
  Graph* root = RootOf(graph);
  size_t more = 1;
  if (IsAllocation(params)) {
    if (IsChild(graph)) return CUDA_ERROR_NOT_SUPPORTED;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && !MayFree(root, params.free_address)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  } else if (params.type == CU_GRAPH_NODE_TYPE_GRAPH && params.child.graph->allocates) {
    // Its nodes' addresses are added to the root's table when it arrives.
    more = params.child.graph->uses.count();
  } else {
    return CUDA_SUCCESS;
  }
  return root->uses.Reserve(more) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

bool CopyConditions(const Graph* from, Graph* to) {
  for (const Condition& condition : from->conditions) {
    if (!to->conditions.Push(condition)) return false;
  }
  return true;
}

// Each clone holds as many references as its original.
bool CopyObjects(const Graph* from, Graph* to) {
  for (const ObjectReference& reference : from->objects) {
    if (!to->objects.Push(reference)) return false;
    reference.object->references += reference.count;
  }
  return true;
}

}  // namespace

bool IsAllocation(const NodeParams& params) {
  return params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC || params.type == CU_GRAPH_NODE_TYPE_MEM_FREE;
}

bool Allocates(const Node& node) {
  bool has = IsAllocation(node.params);
  ForEachInner(node, [&has](const Graph* inner) { has = has || HasAllocations(inner); });
  return has;
}

bool IsChild(const Graph* graph) {
  return graph->owner != nullptr && graph->owner->params.type == CU_GRAPH_NODE_TYPE_GRAPH;
}

Graph* FindGraph(CUgraph handle) {
  return living.graphs.Contains(handle) ? reinterpret_cast<Graph*>(handle) : nullptr;
}
Node* FindNode(CUgraphNode handle) {
  return living.nodes.Contains(handle) ? reinterpret_cast<Node*>(handle) : nullptr;
}

Graph* MakeGraph() {
  auto* graph = static_cast<Graph*>(calloc(1, sizeof(Graph)));
  if (graph == nullptr) return nullptr;
  if (!living.graphs.Add(graph)) {
    free(graph);
    return nullptr;
  }
  graph->serial = ++living.last_serial;
  return graph;
}

// Captures come first: they know nodes. Destructors of user objects are only queued here, because
// the lock is held; the entry points run them after they have released it.
void DestroyGraph(Graph* graph) {
  ForgetGraphLocked(graph);
  // The nodes' accounts use the tables freed below.
  for (Node* node : graph->nodes) FreeNode(node);
  graph->nodes.Free();
  graph->freed.Free();
  graph->uses.Free();
  DropAllObjects(graph);
  graph->conditions.Free();
  if (graph->reservation != nullptr) DriverDropConditions(graph);
  living.graphs.Remove(graph);
  free(graph);
}

Graph* RootOf(Graph* graph) {
  while (graph->owner != nullptr) graph = graph->owner->graph;
  return graph;
}

uint64_t NewMark() { return ++living.last_mark; }

// Executable graphs' copies have none of their own: MakeExec lends them the program's graph's only
// while the driver makes them.
void ForgetReservations() {
  for (size_t i = 0; i < living.graphs.capacity(); ++i) {
    if (living.graphs.slot(i) == nullptr) continue;
    auto* graph = static_cast<Graph*>(const_cast<void*>(living.graphs.slot(i)));
    if (graph->reservation != nullptr) DriverDropConditions(graph);
  }
}

CUresult AddNode(Graph* graph, NodeParams* params, const Edge* dependencies, size_t count,
                 Node** out) {
  *out = nullptr;
  // The room that NoteAllocation needs is made before anything is changed: afterwards nothing may
  // fail.
  const CUresult checked = CheckAllocation(graph, *params);
  if (checked != CUDA_SUCCESS) {
    FreeParams(params);
    return checked;
  }
  Node* node = Append(graph, params);
  if (node == nullptr) {
    FreeParams(params);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUresult result = AddEdge(dependencies[i].node, node, dependencies[i].data);
    if (result != CUDA_SUCCESS) {
      // A graph that was moved here goes back to the program, whose call failed; the node would
      // take it along otherwise.
      ForEachInner(*node, [](Graph* inner) { inner->owner = nullptr; });
      DestroyNode(node);
      return result;
    }
  }
  // Last, so that a node that is destroyed above is in no account (Node::noted).
  if (Allocates(*node)) NoteAllocation(node);
  *out = node;
  return CUDA_SUCCESS;
}

void DestroyNode(Node* node) {
  ForgetNodeLocked(node);
  for (const Edge& edge : node->in) RemoveEnd(&edge.node->out, node);
  for (const Edge& edge : node->out) RemoveEnd(&edge.node->in, node);
  Graph* graph = node->graph;
  graph->nodes.Remove(
      LowerBound(graph->nodes, node->serial, [](const Node& one) { return one.serial; }));
  FreeNode(node);
}

bool HasEdge(const Node* from, const Node* to) {
  // Whichever list is shorter: nodes that all others depend on, and those that depend on all, are common.
  const bool by_from = from->out.count() < to->in.count();
  for (const Edge& edge : by_from ? from->out : to->in) {
    if (edge.node == (by_from ? to : from)) return true;
  }
  return false;
}

CUresult AddEdge(Node* from, Node* to, const CUgraphEdgeData& data) {
  if (from == to || from->graph != to->graph || HasEdge(from, to)) return CUDA_ERROR_INVALID_VALUE;
  if (!from->out.Push({to, data})) return CUDA_ERROR_OUT_OF_MEMORY;
  // Both ends know an edge, or none.
  if (!to->in.Push({from, data})) {
    from->out.Remove(from->out.count() - 1);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  return CUDA_SUCCESS;
}

CUresult RemoveEdge(Node* from, Node* to, const CUgraphEdgeData& data) {
  for (const Edge& edge : to->in) {
    if (edge.node != from) continue;
    // With other data it is an edge that does not exist.
    if (memcmp(&edge.data, &data, sizeof(data)) != 0) return CUDA_ERROR_INVALID_VALUE;
    RemoveEnd(&to->in, from);
    RemoveEnd(&from->out, to);
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

Graph* CloneGraph(const Graph* graph) {
  Graph* clone = MakeGraph();
  if (clone == nullptr) return nullptr;
  clone->original_serial = graph->serial;
  // Copied nodes are in no table of uses: only the graphs that the program sees keep account of
  // them.
  clone->allocates = graph->allocates;
  clone->reuses_memory = graph->reuses_memory;
  if (!CopyNodes(graph, clone) || !CopyObjects(graph, clone) || !CopyConditions(graph, clone)) {
    DestroyGraph(clone);
    return nullptr;
  }
  return clone;
}

Node* FindInClone(const Graph* clone, const Node* original) {
  // Nodes that were added to the clone since stand behind those that it was made with.
  const size_t at = LowerBound(clone->nodes, original->serial, [](const Node& one) {
    return one.original_serial == 0 ? UINT64_MAX : one.original_serial;
  });
  if (at == clone->nodes.count()) return nullptr;
  return clone->nodes[at]->original_serial == original->serial ? clone->nodes[at] : nullptr;
}

// Kahn's algorithm: Node::index counts what a node still waits for, and `order` is its queue.
CUresult TopologicalOrder(const Graph* graph, Growing<Node*>* order, Node** culprit) {
  *culprit = nullptr;
  for (Node* node : graph->nodes) {
    node->index = static_cast<uint32_t>(node->in.count());
    if (node->index == 0 && !order->Push(node)) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (size_t next = 0; next < order->count(); ++next) {
    for (const Edge& edge : (*order)[next]->out) {
      if (--edge.node->index == 0 && !order->Push(edge.node)) return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  // What is left lies on a cycle or behind one.
  if (order->count() == graph->nodes.count()) return CUDA_SUCCESS;
  for (Node* node : graph->nodes) {
    if (node->index != 0) *culprit = node;
  }
  return CUDA_ERROR_INVALID_VALUE;
}

}  // namespace gpuloom::graph
