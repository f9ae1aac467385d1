// SPDX-License-Identifier: Apache-2.0
// Keeps graphs of very many nodes from being very wide. For nodes side by side NVIDIA's driver takes a time that grows with
// the square of their number, in one call in which no other of the process gets on: 46 s for 131,072, as measured in
// docs/design/running-graphs.md. Some more edges make it grow with the number; the device runs 128 kernels side by side.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// Fewer nodes are left as they are.
inline constexpr uint32_t kManyGraphNodes = 4096;
inline constexpr uint32_t kMostNodesSideBySide = 1024;

// Edges (from, to) to be added to those of the definition, which must have been validated. Of nodes on the same level, by
// the longest way to them, each gets one from the node so many before it. They lead from lower to higher nodes, as the
// definition's do, so there is no circle. `part` says in which of the driver's graphs a node is; nullopt: in none.
std::vector<std::pair<uint32_t, uint32_t>> EdgesAgainstWidth(
    const wire::GraphReader& reader,
    const std::function<std::optional<uint64_t>(uint32_t node)>& part);

}  // namespace gpuloom::executor
