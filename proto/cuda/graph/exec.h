// Executable graphs, and what a driver does with one: the border between the graph model, which the
// shim and the software driver share, and their two ways of running it.
//
// An Exec owns a copy of the graph it was made from (child graphs included) and that copy's
// definition: one flat list of steps in topological order. A child graph's steps stand in the list
// themselves; its node stands behind them as an empty step that waits for the child's last ones, so
// that nobody who runs a graph needs to know of child graphs. The list never changes afterwards;
// the nodes' parameters do, with UpdateStep.
//
// The Driver… functions are provided by the library this is compiled into. They are called with
// GraphLock held, and never at once for one Exec.
#pragma once

#include <cstdint>

#include "proto/cuda/graph/graph.h"

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

struct Definition {
  Growing<Step> steps;
  Growing<Dependency> dependencies;
};

struct Exec {
  uint64_t serial;
  uint64_t flags;  // CUDA_GRAPH_INSTANTIATE_FLAG_*
  Graph* graph;
  Definition definition;
  // Of the allocation nodes that nobody freed in the graph: allocated and not freed since.
  bool holds_allocations;
  void* driver;  // the driver's own, null before DriverInstantiate succeeded
};

// Makes it ready to run; sets exec->driver. With an error *culprit may be set to the node of the
// Exec's copy that cannot be run.
[[nodiscard]] CUresult DriverInstantiate(Exec* exec, Node** culprit);
// Step `place` (kinds other than GRAPH) is to run with `params` from the next launch on, or to be
// passed over when not enabled. step.node still has the old ones; it gets the new ones when this
// succeeds.
[[nodiscard]] CUresult DriverUpdateStep(Exec* exec, uint32_t place, const NodeParams& params,
                                        bool enabled);
// Queues one run in the stream.
[[nodiscard]] CUresult DriverLaunch(Exec* exec, CUstream stream, bool null_is_per_thread);
[[nodiscard]] CUresult DriverUpload(Exec* exec, CUstream stream, bool null_is_per_thread);
// Runs already queued still happen.
void DriverDestroy(Exec* exec);

Exec* FindExec(CUgraphExec handle);

}  // namespace gpuloom::graph
