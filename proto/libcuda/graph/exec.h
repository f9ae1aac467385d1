// SPDX-License-Identifier: Apache-2.0
// Executable graphs, and what a driver does with one: the border between the graph model, which the
// shim and the software driver share, and their two ways of running it.
//
// An Exec owns a copy of the graph it was made from (child graphs included) and that copy's
// definition: one flat list of steps in topological order. A child graph's steps stand in the list
// themselves; its node stands behind them as an empty step that waits for the child's last ones, so
// that nobody who runs a graph needs to know of child graphs. A conditional node is one step; behind
// the graph's own steps come those of its bodies, each body a range of its own. The list never
// changes afterwards; the nodes' parameters do, with DriverUpdate.
//
// The Driver… functions are provided by the library this is compiled into. They are called with
// GraphLock held, and never at once for one Exec.
#pragma once

#include <cstdint>

#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// What a step waits for: a step before it in the list.
struct Dependency {
  uint32_t step;
  CUgraphEdgeData data;
};

struct Step {
  Node* node;  // of the Exec's copy; kind GRAPH is an empty step
  uint32_t first_dependency;
  uint32_t dependency_count;
};

// The steps of one body. The bodies of a conditional step stand one after the other, those of a step
// before another's; the graph's own steps are what comes before the first.
struct Body {
  uint32_t owner;  // the conditional step
  uint32_t first;  // step
  uint32_t count;
};

struct Definition {
  Growing<Step> steps;
  Growing<Dependency> dependencies;
  Growing<Body> bodies;
};

struct Exec {
  uint64_t flags;  // CUDA_GRAPH_INSTANTIATE_FLAG_*
  Graph* graph;
  Definition definition;
  uint32_t hint;  // where FindStep found the last step
  void* driver;   // the driver's own, null before DriverInstantiate succeeded
};

// Makes it ready to run; sets exec->driver. exec->graph has its original's conditions and reservation. With an error *culprit may be set to the node of the
// Exec's copy that cannot be run.
[[nodiscard]] CUresult DriverInstantiate(Exec* exec, Node** culprit);
// Step `place` (of a kind other than GRAPH) is to run with `params`, or to be passed over when not
// enabled. Until the change has succeeded the step's node still has the old ones.
struct StepChange {
  uint32_t place;
  const NodeParams* params;
  bool enabled;
};
// For the launches from here on. With an error *failed may be set to the change that could not be
// made; those before it may have been.
[[nodiscard]] CUresult DriverUpdate(Exec* exec, const StepChange* changes, uint32_t count,
                                    uint32_t* failed);
// Queues one run in the stream.
[[nodiscard]] CUresult DriverLaunch(Exec* exec, CUstream stream, bool null_is_per_thread);
[[nodiscard]] CUresult DriverUpload(Exec* exec, CUstream stream, bool null_is_per_thread);
// Until the runs queued so far are done. Without the lock; nothing else is called for this Exec
// meanwhile.
void DriverFinish(Exec* exec);
// Runs already queued still happen.
void DriverDestroy(Exec* exec);

Exec* FindExec(CUgraphExec handle);
inline CUgraphExec HandleOf(Exec* exec) { return reinterpret_cast<CUgraphExec>(exec); }

// An executable graph was made of it and lives. The conditions of a graph are one set, and so is its
// memory: one executable graph at a time has them.
bool IsInstantiated(const Graph* graph);

// A copy of the graph, ready to run. *culprit: a node of `graph` that is to blame, or null.
[[nodiscard]] CUresult MakeExec(const Graph* graph, uint64_t flags, Exec** exec, Node** culprit,
                                CUgraphInstantiateResult* why);
// Takes it out of the table of the living; the rest is FreeExec's, behind DriverFinish when the
// graph holds user objects.
void ForgetExec(Exec* exec);
bool HoldsObjects(const Graph* graph);
void FreeExec(Exec* exec);

// The step that was made from a node of the graph it was instantiated from, or null.
Step* FindStep(Exec* exec, const Node* original);

// New parameters for one node of the Exec's copy; takes them over, also when it fails.
[[nodiscard]] CUresult UpdateNode(Exec* exec, Node* node, NodeParams* params);
// The parameters of a graph of the same shape for the nodes of a child node's graph.
[[nodiscard]] CUresult UpdateChild(Exec* exec, Node* node, const Graph* graph);
[[nodiscard]] CUresult EnableNode(Exec* exec, Node* node, bool enabled);
// cuGraphExecUpdate: all parameters of a graph of the same shape.
[[nodiscard]] CUresult UpdateExec(Exec* exec, const Graph* graph,
                                  CUgraphExecUpdateResultInfo* info);

// For the reset of the context: nothing of the driver's is left. Takes the lock.
void ForgetAllExecs();

}  // namespace gpuloom::graph
