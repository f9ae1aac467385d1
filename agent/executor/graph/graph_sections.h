// SPDX-License-Identifier: Apache-2.0
// How a graph with host nodes (the tenant's functions, copies from pinned memory to pinned memory, waits
// for values) is cut into sections, which are launched one after the other, with the host nodes between
// them. docs/design/running-graphs.md explains why the device never waits for a host node itself.
//
// Pure functions; results are values that refer to nothing. Any thread: a worker cuts large definitions, whose reader and
// scopes outlive the call. The definition has been validated, so nothing fails. Memory: 4 bytes for each node, at most
// wire::kMaxGraphNodes, and for each section.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/wire/graph_nodes.h"
#include "proto/wire/graph_scopes.h"

namespace gpuloom::executor {

struct GraphSections {
  std::vector<uint32_t> of_node;  // by node; a host node runs after its section
  std::vector<uint32_t> nodes;    // by section, without host nodes
  // A condition might be set in one section and evaluated in another, which the driver's graphs,
  // one per section, do not support.
  bool conditions_are_cut = false;

  uint32_t count() const { return static_cast<uint32_t>(nodes.size()); }
};

// Returns true for host nodes. Bodies of conditional nodes contain none.
bool RunsOnHost(const wire::GraphReader& reader, const wire::GraphNode& node);

// Functions and copies run as early as possible, waits as late as possible: the value may be written by a function that
// does not depend on the wait. Device nodes run as late as the host nodes behind them allow, and those that no host
// node needs run last of all, so that the node that sets a condition stays with the node that evaluates it. In graphs
// with waits and no condition, however, device nodes run as early as possible, because they too may write the value.
// Linear in nodes and edges; any thread. `reader` has parsed a definition, `scopes` are its scopes.
GraphSections CutIntoSections(const wire::GraphReader& reader, const wire::GraphScopes& scopes);

}  // namespace gpuloom::executor
