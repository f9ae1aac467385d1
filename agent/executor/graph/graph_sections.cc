// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_sections.h"

#include <algorithm>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/graph/graph_edges.h"
#include "agent/executor/graph/graph_waits.h"

namespace gpuloom::executor {

using wire::GraphNodeKind;

bool RunsOnHost(const wire::GraphReader& reader, const wire::GraphNode& node) {
  if (node.kind != GraphNodeKind::kCopy) return node.kind == GraphNodeKind::kHost;
  return node.body_bytes != 0 && IsHostCopy(reader.Body<wire::GraphCopy>(node));
}

uint32_t GraphSections::graphs() const {
  return static_cast<uint32_t>(
      std::count_if(nodes.begin(), nodes.end(), [](uint32_t count) { return count != 0; }));
}

GraphSections CutIntoSections(const wire::GraphReader& reader, const wire::GraphScopes& scopes) {
  GraphSections cut;
  const uint32_t count = reader.nodes();
  cut.of_node.assign(count, 0);
  cut.nodes.assign(1, count);
  const uint32_t own = scopes.scopes()[0].nodes;
  std::vector<bool> on_host(own);
  for (uint32_t i = 0; i < own; ++i) on_host[i] = RunsOnHost(reader, reader.Node(i));
  if (std::find(on_host.begin(), on_host.end(), true) == on_host.end()) return cut;

  // How many nodes of the host's and waits a node has before it, one behind the other. Those of the same
  // number do not need each other, and have their turn together.
  const EdgesOut edges(reader);
  std::vector<uint32_t> depth(own);
  std::vector<uint32_t> depths;  // of the host's
  for (uint32_t i = 0; i < own; ++i) {
    const uint32_t behind =
        depth[i] + (on_host[i] || WaitsForValue(reader, reader.Node(i)) ? 1 : 0);
    edges.ForEach(i, [&](uint32_t to) { depth[to] = std::max(depth[to], behind); });
    if (on_host[i]) depths.push_back(depth[i]);
  }
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  const auto last = static_cast<uint32_t>(depths.size());
  cut.nodes.assign(last + 1, 0);

  std::vector<bool> leads_to_condition(own);
  uint32_t first_condition = last;
  uint32_t last_condition = 0;
  for (uint32_t i = own; i-- > 0;) {
    const GraphNodeKind kind = reader.Node(i).kind;
    uint32_t section = last;
    bool leads = kind == GraphNodeKind::kConditional;
    edges.ForEach(i, [&](uint32_t to) {
      section = std::min(section, cut.of_node[to]);
      leads = leads || leads_to_condition[to];
    });
    if (on_host[i]) {
      section = static_cast<uint32_t>(std::lower_bound(depths.begin(), depths.end(), depth[i]) -
                                      depths.begin());
    } else {
      ++cut.nodes[section];
    }
    cut.of_node[i] = section;
    leads_to_condition[i] = leads;
    const bool sets_or_asks =
        kind == GraphNodeKind::kConditional || (kind == GraphNodeKind::kKernel && leads);
    if (!sets_or_asks) continue;
    first_condition = std::min(first_condition, section);
    last_condition = std::max(last_condition, section);
  }
  cut.conditions_are_cut = first_condition < last_condition;
  // Bodies go with the node that has them, which comes before them.
  for (const wire::GraphScope& scope : scopes.scopes()) {
    if (scope.owner == wire::kNoGraphNode) continue;
    const uint32_t section = cut.of_node[scope.owner];
    std::fill_n(cut.of_node.begin() + scope.first, scope.nodes, section);
    cut.nodes[section] += scope.nodes;
  }
  return cut;
}

}  // namespace gpuloom::executor
