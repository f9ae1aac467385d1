// SPDX-License-Identifier: Apache-2.0
// A CUDA graph as the program built or captured it: nodes, edges, parameters. Nothing here runs;
// nothing leaves the process before a graph is instantiated (exec.h). See docs/design/graphs.md.
//
// A Graph owns its nodes and its references to user objects; a child graph, and each body of a
// conditional node, belongs to its node.
// CUgraph and CUgraphNode are addresses of Graph and Node, judged against a table of the living, so
// that a wrong handle is an error and never a crash. Everything here needs the model's one lock
// (GraphLock): CUDA lets one thread at a time use a graph, captures may use one from several.
// No exceptions, no C++ library: this is compiled into tenants' processes.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/node.h"
#include "proto/libcuda/growing.h"
#include "proto/sync/mutex.h"

namespace gpuloom::graph {

struct Node;
struct UserObject;
struct Capture;

// One end of an edge, as the node at the other end keeps it.
struct Edge {
  Node* node;
  CUgraphEdgeData data;  // programmatic ports are kept; all zero is an ordinary dependency
};

struct Node {
  Graph* graph;
  uint64_t serial;  // never used twice; what cuGraphDebugDotPrint shows
  // Of an executable graph's copy: the node it was copied from, whose handle the program passes.
  // Of a clone: the original's. Compared by serial, because that node may be gone.
  uint64_t original_serial;
  NodeParams params;
  Growing<Edge> in;   // what must be done before
  Growing<Edge> out;  // what waits for it
  uint32_t index;     // scratch of the traversals, valid while the lock is held
  // Of an executable graph's copy: its place in the definition, see exec.h.
  uint32_t place;
  bool enabled;
};

struct ObjectReference {
  UserObject* object;
  uint32_t count;
};

// A conditional handle, which kernels set and one conditional node goes by.
struct Condition {
  CUgraphConditionalHandle handle;
  CUcontext context;
  bool used;  // by a node
};

struct Graph {
  uint64_t serial;
  uint64_t original_serial;  // of a clone
  Growing<Node*> nodes;      // in the order of their making
  Growing<ObjectReference> objects;
  Node* owner;       // the node whose child graph or body this is, or null
  Capture* capture;  // the capture that adds to it, or null
  bool executable;   // an executable graph's own copy: no handle of the program's
  // Of a graph without an owner: the handles for its own conditional nodes and those in its bodies,
  // and what the driver keeps for them (null: it has forgotten them).
  Growing<Condition> conditions;
  void* reservation;
};

class GPULOOM_SCOPED_CAPABILITY GraphLock {
 public:
  GraphLock() GPULOOM_ACQUIRE(mutex_) { mutex_.Lock(); }
  ~GraphLock() GPULOOM_RELEASE() { mutex_.Unlock(); }
  GraphLock(const GraphLock&) = delete;
  GraphLock& operator=(const GraphLock&) = delete;

 private:
  static Mutex mutex_;
};

// An allocation or free node: graphs that have one, or one inside of them, cannot be cloned; children
// they can be when they are moved.
bool IsAllocation(const NodeParams& params);
bool HasAllocations(const Graph* graph);
// The node is one, or has one inside of it: it and its edges stay as long as its graph.
bool Allocates(const Node& node);
// It belongs to a child node: nothing can be allocated in it any more.
bool IsChild(const Graph* graph);

// The object behind a handle, or null.
Graph* FindGraph(CUgraph handle);
Node* FindNode(CUgraphNode handle);
inline CUgraph HandleOf(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode HandleOf(Node* node) { return reinterpret_cast<CUgraphNode>(node); }

// Null without memory.
Graph* MakeGraph();
// With its nodes, their graphs and references to user objects.
void DestroyGraph(Graph* graph);

// Where the owners of a child graph or body lead to; the graph itself when it has none.
Graph* RootOf(Graph* graph);
// Visits each graph that the node owns.
template <typename F>
void ForEachInner(const Node& node, F visit) {
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) visit(node.params.child.graph);
  if (node.params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return;
  for (uint32_t i = 0; i < node.params.conditional.count; ++i) {
    visit(node.params.conditional.bodies[i]);
  }
}
// The driver has forgotten all reservations.
void ForgetReservations();

// Takes `params` over, also when it fails. `dependencies` are of this graph, without doubles.
[[nodiscard]] CUresult AddNode(Graph* graph, NodeParams* params, const Edge* dependencies,
                               size_t count, Node** node);
void DestroyNode(Node* node);
// INVALID_VALUE when the edge is there already, or not there.
[[nodiscard]] CUresult AddEdge(Node* from, Node* to, const CUgraphEdgeData& data);
[[nodiscard]] CUresult RemoveEdge(Node* from, Node* to, const CUgraphEdgeData& data);
bool HasEdge(const Node* from, const Node* to);

// A deep copy. Node i of the copy is made from node i. Null without memory.
Graph* CloneGraph(const Graph* graph);
// The clone's node made from `original`, or null.
Node* FindInClone(const Graph* clone, const Node* original);

// Every node after all it depends on, ties in the order of making. INVALID_VALUE when the edges
// form a cycle, *culprit is then a node on it; the caller frees `order`.
[[nodiscard]] CUresult TopologicalOrder(const Graph* graph, Growing<Node*>* order, Node** culprit);

}  // namespace gpuloom::graph
