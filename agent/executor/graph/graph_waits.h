// SPDX-License-Identifier: Apache-2.0
// How many nodes of a graph's definition may wait at a time, each in a queue of the device of its own.
// docs/design/running-graphs.md says what that means for everybody.
#pragma once

#include <cstdint>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

// So many nodes of all graphs at CUDA may wait for values at a time: each keeps
// one of the device's 16 queues from going on, and with all of them nothing of anybody runs
// (measured). Half of them stay free.
inline constexpr uint32_t kMostGraphWaits = 8;
// Of a session, unless a single graph has more.
inline constexpr uint32_t kMostSessionGraphWaits = 2;

// Never too few; kMostGraphWaits + 1 stands for more. Any thread; linear in nodes and edges. `reader` has
// parsed a definition.
uint32_t WaitsAtOnce(const wire::GraphReader& reader);

// A node with a memory operation that waits.
bool WaitsForValue(const wire::GraphReader& reader, const wire::GraphNode& node);

}  // namespace gpuloom::executor
