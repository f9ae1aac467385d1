// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_sections.h"

#include <algorithm>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/graph/graph_edges.h"
#include "agent/executor/stream/memory_operations.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

namespace {

// One wait among its operations makes the whole node the host's, because the operations of one node
// are done in order.
bool HasWait(const wire::GraphReader& reader, const wire::GraphNode& node) {
  for (uint32_t i = 0; i < reader.Operations(node); ++i) {
    if (WaitsForValue(reader.Operation(node, i))) return true;
  }
  return false;
}

}  // namespace

bool RunsOnHost(const wire::GraphReader& reader, const wire::GraphNode& node) {
  switch (node.kind) {
    case GraphNodeKind::kHost:
      return true;
    case GraphNodeKind::kCopy:
      return node.body_bytes != 0 && IsHostCopy(reader.Body<wire::GraphCopy>(node));
    case GraphNodeKind::kMemoryOperations:
      return HasWait(reader, node);
    default:
      return false;
  }
}

// Two passes. Forward, by a queue for each turn, every node gets the earliest section it can be in.
// Backward, where that is wanted, device nodes move into the latest one. Only the graph's own nodes
// are cut: bodies of conditional nodes follow their node.
GraphSections CutIntoSections(const wire::GraphReader& reader, const wire::GraphScopes& scopes) {
  GraphSections cut;
  const uint32_t count = reader.nodes();
  cut.of_node.assign(count, 0);
  cut.nodes.assign(1, count);
  const uint32_t own = scopes.scopes()[0].nodes;
  enum class Turn : uint8_t { kDevice, kFunction, kWait };
  std::vector<Turn> turns(own, Turn::kDevice);
  bool any_wait = false, any_condition = false, any_on_host = false;
  for (uint32_t i = 0; i < own; ++i) {
    const wire::GraphNode node = reader.Node(i);
    any_condition |= node.kind == GraphNodeKind::kConditional;
    if (!RunsOnHost(reader, node)) continue;
    any_on_host = true;
    const bool waits = node.kind == GraphNodeKind::kMemoryOperations;
    any_wait |= waits;
    turns[i] = waits ? Turn::kWait : Turn::kFunction;
  }
  if (!any_on_host) return cut;

  // Puts each node into the earliest section possible. Host nodes of the same section do not depend
  // on each other.
  const EdgesOut edges(reader);
  std::vector<uint32_t> left(own);  // how many nodes must still run before it
  for (uint32_t i = 0; i < own; ++i) edges.ForEach(i, [&](uint32_t to) { ++left[to]; });
  std::vector<uint32_t> ready, functions, waits;
  const auto add = [&](uint32_t i) {
    (turns[i] == Turn::kDevice     ? ready
     : turns[i] == Turn::kFunction ? functions
                                   : waits)
        .push_back(i);
  };
  const auto release = [&](uint32_t i) {
    edges.ForEach(i, [&](uint32_t to) {
      if (--left[to] == 0) add(to);
    });
  };
  for (uint32_t i = 0; i < own; ++i) {
    if (left[i] == 0) add(i);
  }
  uint32_t last = 0;
  for (;; ++last) {
    while (!ready.empty()) {
      const uint32_t i = ready.back();
      ready.pop_back();
      cut.of_node[i] = last;
      release(i);
    }
    std::vector<uint32_t> turn;
    // Functions first, all of them: one of them may write the value that a wait is for.
    turn.swap(functions.empty() ? waits : functions);
    if (turn.empty()) break;
    for (const uint32_t i : turn) {
      cut.of_node[i] = last;
      release(i);
    }
  }
  cut.nodes.assign(last + 1, 0);

  const bool late = !any_wait || any_condition;
  std::vector<bool> leads_to_condition(own);
  uint32_t first_condition = last;
  uint32_t last_condition = 0;
  // Edges lead to higher numbers, so what a node leads to has been placed already.
  for (uint32_t i = own; i-- > 0;) {
    const GraphNodeKind kind = reader.Node(i).kind;
    uint32_t latest = last;
    bool leads = kind == GraphNodeKind::kConditional;
    edges.ForEach(i, [&](uint32_t to) {
      latest = std::min(latest, cut.of_node[to]);
      leads = leads || leads_to_condition[to];
    });
    const bool on_device = turns[i] == Turn::kDevice;
    if (on_device && late) cut.of_node[i] = latest;
    const uint32_t section = cut.of_node[i];
    cut.nodes[section] += on_device;
    leads_to_condition[i] = leads;
    // Any kernel before a conditional node may set its condition: nothing in the definition says
    // which one does.
    const bool sets_or_asks =
        kind == GraphNodeKind::kConditional || (kind == GraphNodeKind::kKernel && leads);
    if (!sets_or_asks) continue;
    first_condition = std::min(first_condition, section);
    last_condition = std::max(last_condition, section);
  }
  cut.conditions_are_cut = first_condition < last_condition;
  // Bodies belong to the section of their node, which precedes them.
  for (const wire::GraphScope& scope : scopes.scopes()) {
    if (scope.owner == wire::kNoGraphNode) continue;
    const uint32_t section = cut.of_node[scope.owner];
    std::fill_n(cut.of_node.begin() + scope.first, scope.nodes, section);
    cut.nodes[section] += scope.nodes;
  }
  return cut;
}

}  // namespace gpuloom::executor
