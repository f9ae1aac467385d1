// SPDX-License-Identifier: Apache-2.0
// Executable graphs, and what a driver does with one: the boundary between the graph model, which the shim and the
// software driver share, and their two ways of running it.
//
// An Exec owns a copy of the graph it was made from (child graphs included) and that copy's definition: one flat list
// of steps in topological order. A child graph's steps are in the list themselves, followed by its node as an empty
// step that waits for the child's last ones, so that code that runs a graph need not know about child graphs. A
// conditional node is one step; the steps of its bodies follow the graph's own, each body a range. The list never
// changes afterwards; the nodes' parameters do, through DriverUpdate.
//
// The Driver… functions are provided by the library this is compiled into. They are called with GraphLock held, and
// never concurrently for one Exec.
#pragma once

#include <cstdint>

#include "proto/libcuda/default_stream.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// The earlier step in the list for which a step waits.
struct Dependency {
  uint32_t step;
  CUgraphEdgeData data;
};

struct Step {
  Node* node;  // of the Exec's copy; kind GRAPH is an empty step
  uint32_t first_dependency;
  uint32_t dependency_count;
};

// The steps of one body. The bodies of a conditional step are adjacent; the graph's own steps are those before the
// first body.
struct Body {
  uint32_t owner;  // the conditional step
  uint32_t first;  // step
  uint32_t count;
};

struct Definition {
  Growing<Step> steps;
  Growing<Dependency> dependencies;
  Growing<Body> bodies;
  Growing<Node*> allocations;  // the nodes of those steps that allocate or free, in their order
};

struct Exec {
  uint64_t flags;  // CUDA_GRAPH_INSTANTIATE_FLAG_*
  Graph* graph;
  Definition definition;
  void* driver;  // the driver's own, null before DriverInstantiate succeeded
};

// Makes it ready to run; sets exec->driver. exec->graph has its original's conditions and reservation. On error
// *culprit may be set to the node of the Exec's copy that cannot be run.
[[nodiscard]] CUresult DriverInstantiate(Exec* exec, Node** culprit);
// A request that step `place` (of a kind other than GRAPH) run with `params`, or be skipped if not enabled. Until the
// change has succeeded, the step's node still has its old parameters.
struct StepChange {
  uint32_t place;
  const NodeParams* params;
  bool enabled;
};
// Applies to later launches. On error *failed may be set to the change that failed; those before it may have been
// made.
[[nodiscard]] CUresult DriverUpdate(Exec* exec, const StepChange* changes, uint32_t count,
                                    uint32_t* failed);
// Queues one run in the stream.
[[nodiscard]] CUresult DriverLaunch(Exec* exec, CUstream stream, DefaultStream null_means);
[[nodiscard]] CUresult DriverUpload(Exec* exec, CUstream stream, DefaultStream null_means);
// Whether the runs queued so far are done.
bool DriverDone(const Exec& exec);
// Waits until the runs queued so far are done. Without the lock; nothing else is called for this Exec meanwhile.
void DriverFinish(Exec* exec);
// Runs already queued still execute.
void DriverDestroy(Exec* exec);

Exec* FindExec(CUgraphExec handle);
inline CUgraphExec HandleOf(Exec* exec) { return reinterpret_cast<CUgraphExec>(exec); }

// Whether a live executable graph was made from it. The conditions of a graph are one set, and so is its memory: only
// one executable graph at a time can have them.
bool IsInstantiated(const Graph* graph);

// A copy of the graph, ready to run. *culprit: the node of `graph` that caused the failure, or null.
[[nodiscard]] CUresult MakeExec(const Graph* graph, uint64_t flags, Exec** exec, Node** culprit,
                                CUgraphInstantiateResult* why);
// Removes it from the table of live ones; FreeExec does the rest, after DriverFinish if the graph holds user objects.
void ForgetExec(Exec* exec);
bool HoldsObjects(const Graph* graph);
void FreeExec(Exec* exec);

// The step that was made from a node of the graph it was instantiated from, or null.
Step* FindStep(Exec* exec, const Node* original);

// New parameters for one node of the Exec's copy; takes ownership of them, even if it fails.
[[nodiscard]] CUresult UpdateNode(Exec* exec, Node* node, NodeParams* params);
// Updates the nodes of a child node's graph with the parameters of a graph of the same shape.
[[nodiscard]] CUresult UpdateChild(Exec* exec, Node* node, const Graph* graph);
[[nodiscard]] CUresult EnableNode(Exec* exec, Node* node, bool enabled);
// cuGraphExecUpdate: all parameters of a graph of the same shape.
[[nodiscard]] CUresult UpdateExec(Exec* exec, const Graph* graph,
                                  CUgraphExecUpdateResultInfo* info);

// For a reset of the context: nothing of the driver's is left. Takes the lock.
void ForgetAllExecs();

}  // namespace gpuloom::graph
