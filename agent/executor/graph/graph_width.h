// SPDX-License-Identifier: Apache-2.0
// The width of graphs: what it takes, and its limit where there are very many nodes, by adding edges. NVIDIA's driver instantiates nodes that have no edges
// between them in a time quadratic in their number, in one call that blocks every other call of the process: 46 s for
// 131,072 (measured in docs/design/running-graphs.md). With the added edges the time is linear, and the device loses
// nothing by them: it runs 128 kernels at a time. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "agent/executor/graph/graph_sections.h"
#include "proto/wire/graph_nodes.h"
#include "proto/wire/graph_scopes.h"

namespace gpuloom::executor {

// Graphs of fewer nodes get no edges.
inline constexpr uint32_t kManyGraphNodes = 4096;
inline constexpr uint32_t kMostNodesSideBySide = 1024;

// Of how many branches side by side the driver's graphs consist, together: of each, the most nodes on one level, and no more
// than there may be side by side. The driver takes 109 KB of device memory for a branch, as much as for a graph by itself:
// on an H200 (580.159.04) a fresh context had room for 33 graphs of one branch, or for 3 of eleven. Of a definition that has
// been validated; linear in nodes and edges; 12 bytes for each of them.
uint64_t BranchesOf(const wire::GraphReader& reader, const wire::GraphScopes& scopes,
                    const GraphSections& sections);

// How many of its own nodes the driver may begin at once, when what the launch waits for is done: those behind none but empty
// ones, and no more than there may be side by side. A launch that waits at the device waits in so many hardware queues
// (hardware_queues.h). As BranchesOf.
uint32_t HeadsOf(const wire::GraphReader& reader, const wire::GraphScopes& scopes);

// The edges (from, to) to add to those of the definition, which must have been validated. A node's level is the longest
// path to it; each node gets an edge from the one kMostNodesSideBySide before it on its level. Edges lead from lower to
// higher nodes, as the definition's do, so there is no cycle. `part`: in which of the driver's graphs a node is; nullopt:
// in none.
std::vector<std::pair<uint32_t, uint32_t>> EdgesAgainstWidth(
    const wire::GraphReader& reader,
    const std::function<std::optional<uint64_t>(uint32_t node)>& part);

}  // namespace gpuloom::executor
