// SPDX-License-Identifier: Apache-2.0
// A CUDA graph as the program built or captured it: nodes, edges, parameters. Nothing here runs;
// nothing leaves the process before a graph is instantiated (exec.h). See docs/design/graphs.md.
//
// A Graph owns its nodes and its references to user objects; a child graph, and each body of a conditional node,
// belongs to its node. CUgraph and CUgraphNode are addresses of Graph and Node, checked against a table of live ones,
// so that a wrong handle is an error and never a crash. Everything here needs the model's one lock (GraphLock): CUDA
// lets one thread at a time use a graph, captures may use one from several. No exceptions, no C++ library: this is
// compiled into tenants' processes.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/node.h"
#include "proto/libcuda/graph/use_table.h"
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
  uint64_t serial;  // never reused; what cuGraphDebugDotPrint shows
  // In an executable graph's copy: the serial of the node it was copied from, whose handle the program passes. In a
  // clone: the original's. Compared by serial, because that node may be gone.
  uint64_t original_serial;
  NodeParams params;
  Growing<Edge> in;   // the nodes that it waits for
  Growing<Edge> out;  // the nodes that wait for it
  uint32_t index;     // scratch for traversals, valid while the lock is held
  uint64_t mark;      // the last traversal that came here, see NewMark
  // The graph's memory that a node behind this one may reuse (allocation.h), or null.
  GraphMemory* free_after;
  // In an executable graph's copy: its place in the definition, see exec.h.
  uint32_t place;
  bool enabled;
  bool noted;  // NoteAllocation has counted it
};

struct ObjectReference {
  UserObject* object;
  uint32_t count;
};

// A conditional handle: set by kernels, read by one conditional node.
struct Condition {
  CUgraphConditionalHandle handle;
  CUcontext context;
  bool used;  // a node has it
};

struct Graph {
  uint64_t serial;
  uint64_t original_serial;  // of a clone
  Growing<Node*> nodes;      // in creation order
  Growing<ObjectReference> objects;
  Node* owner;       // the node whose child graph or body this is, or null
  Capture* capture;  // the capture that adds to it, or null
  bool executable;   // an executable graph's own copy: no handle of the program's
  // For a graph without an owner: the handles for conditional nodes of its own and in its bodies, and what the driver
  // keeps for them (null: it has forgotten them).
  Growing<Condition> conditions;
  void* reservation;
  // allocates: has an allocation or free node, at any depth. reuses_memory: allocation nodes, at any depth, share
  // memory, which is correct only because they run in order. Such nodes stay as long as their graph.
  bool allocates;
  bool reuses_memory;
  UseTable uses;  // of a graph without an owner; executable graphs' copies note nothing
  // Memory that its nodes have freed and may get again: smallest first, then by address.
  Growing<GraphMemory*> freed;
  uint64_t looked_at;  // nodes and edges visited in search of such memory (kMaxScannedPerNode)
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

// An allocation or free node. Graphs that contain one, at any depth, cannot be cloned; they can become child graphs
// only by being moved.
bool IsAllocation(const NodeParams& params);
inline bool HasAllocations(const Graph* graph) { return graph->allocates; }
// Whether the node is an allocation node or contains one: then it and its edges stay as long as its graph.
bool Allocates(const Node& node);
// Whether the graph belongs to a child node: then no allocation can be added to it.
bool IsChild(const Graph* graph);

// The object behind a handle, or null.
Graph* FindGraph(CUgraph handle);
Node* FindNode(CUgraphNode handle);
inline CUgraph HandleOf(Graph* graph) { return reinterpret_cast<CUgraph>(graph); }
inline CUgraphNode HandleOf(Node* node) { return reinterpret_cast<CUgraphNode>(node); }

// Null if out of memory.
Graph* MakeGraph();
// Destroys the graph with its nodes, their graphs and its references to user objects.
void DestroyGraph(Graph* graph);

// The graph at the top of the owners of a child graph or body; the graph itself if it has no owner.
Graph* RootOf(Graph* graph);
// For Node::mark: no node has it yet.
uint64_t NewMark();
// Visits each graph that the node owns.
template <typename F>
void ForEachInner(const Node& node, F visit) {
  if (node.params.type == CU_GRAPH_NODE_TYPE_GRAPH) visit(node.params.child.graph);
  if (node.params.type != CU_GRAPH_NODE_TYPE_CONDITIONAL) return;
  for (uint32_t i = 0; i < node.params.conditional.count; ++i) {
    visit(node.params.conditional.bodies[i]);
  }
}
// Call it when the driver has forgotten all reservations.
void ForgetReservations();

// Takes ownership of `params`, even if it fails. `dependencies` are in this graph, without duplicates.
[[nodiscard]] CUresult AddNode(Graph* graph, NodeParams* params, const Edge* dependencies,
                               size_t count, Node** node);
void DestroyNode(Node* node);
// An ordinary dependency.
inline constexpr CUgraphEdgeData kPlainEdge = {};
// INVALID_VALUE if the edge already exists, or does not.
[[nodiscard]] CUresult AddEdge(Node* from, Node* to, const CUgraphEdgeData& data);
[[nodiscard]] CUresult RemoveEdge(Node* from, Node* to, const CUgraphEdgeData& data);
bool HasEdge(const Node* from, const Node* to);

// A deep copy. Node i of the copy is made from node i. Null if out of memory.
Graph* CloneGraph(const Graph* graph);
// The clone's node made from `original`, or null.
Node* FindInClone(const Graph* clone, const Node* original);

// Lists every node after all nodes that it depends on, ties in creation order. INVALID_VALUE if the edges form a cycle;
// *culprit is then a node on it. The caller frees `order`.
[[nodiscard]] CUresult TopologicalOrder(const Graph* graph, Growing<Node*>* order, Node** culprit);

}  // namespace gpuloom::graph
