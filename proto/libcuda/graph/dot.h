// SPDX-License-Identifier: Apache-2.0
// Writes a graph as text for Graphviz, as cuGraphDebugDotPrint does. Needs GraphLock; blocks while the file is written.
#pragma once

#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {

// False when the file cannot be written. `flags`: CU_GRAPH_DEBUG_DOT_FLAGS_*.
[[nodiscard]] bool PrintDot(const Graph& graph, const char* path, unsigned flags);

}  // namespace gpuloom::graph
