// SPDX-License-Identifier: Apache-2.0
// Limits the width of graphs with very many nodes by adding edges. NVIDIA's driver instantiates nodes that have no edges
// between them in a time quadratic in their number, in one call that blocks every other call of the process: 46 s for
// 131,072 (measured in docs/design/running-graphs.md). With the added edges the time is linear, and the device loses
// nothing by them: it runs 128 kernels at a time. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// Graphs of fewer nodes get no edges.
inline constexpr uint32_t kManyGraphNodes = 4096;
inline constexpr uint32_t kMostNodesSideBySide = 1024;

// The edges (from, to) to add to those of the definition, which must have been validated. A node's level is the longest
// path to it; each node gets an edge from the one kMostNodesSideBySide before it on its level. Edges lead from lower to
// higher nodes, as the definition's do, so there is no cycle. `part`: in which of the driver's graphs a node is; nullopt:
// in none.
std::vector<std::pair<uint32_t, uint32_t>> EdgesAgainstWidth(
    const wire::GraphReader& reader,
    const std::function<std::optional<uint64_t>(uint32_t node)>& part);

}  // namespace gpuloom::executor
