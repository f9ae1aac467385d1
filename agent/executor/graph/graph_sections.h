// SPDX-License-Identifier: Apache-2.0
// How a graph with nodes of the host's is cut, the tenant's functions, copies from pinned memory to pinned
// memory and waits for values: into sections, which go to the device one after the other, with those nodes between
// them. docs/design/running-graphs.md says why the device never waits for one itself.
#pragma once

#include <cstdint>
#include <vector>

#include "proto/wire/graph_nodes.h"
#include "proto/wire/graph_scopes.h"

namespace gpuloom::executor {

struct GraphSections {
  std::vector<uint32_t> of_node;  // by node; one of the host's runs behind its section
  std::vector<uint32_t> nodes;    // by section, the host's apart
  // A condition may be set in one section and asked for in another, which the driver's graphs, one for a section,
  // do not do.
  bool conditions_are_cut = false;

  uint32_t count() const { return static_cast<uint32_t>(nodes.size()); }
  // Those that the driver has a graph for.
  uint32_t graphs() const;
};

// A node of the host's. In bodies there are none.
bool RunsOnHost(const wire::GraphReader& reader, const wire::GraphNode& node);

// Functions and copies have their turn as early as they can, waits as late: the value may come from a function
// that needs nothing of it. All else goes as late as the host's nodes allow that come behind it: what none of them
// needs goes behind all, so that what sets a condition stays with who asks for it. But beside waits, where no
// condition is, it goes as early as it can, for the value may come from there, too. Linear in nodes and edges; any
// thread. `reader` has parsed a definition, of which `scopes` are.
GraphSections CutIntoSections(const wire::GraphReader& reader, const wire::GraphScopes& scopes);

}  // namespace gpuloom::executor
