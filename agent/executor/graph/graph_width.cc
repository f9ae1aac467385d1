// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_width.h"

#include <algorithm>
#include <map>

#include "agent/executor/graph/graph_edges.h"

namespace gpuloom::executor {

uint64_t BranchesOf(const wire::GraphReader& reader, const wire::GraphScopes& scopes,
                    const GraphSections& sections) {
  const EdgesOut edges(reader);
  std::vector<uint32_t> level(reader.nodes());
  std::map<uint64_t, std::vector<uint32_t>> on_level;  // by graph
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    edges.ForEach(i, [&](uint32_t to) { level[to] = std::max(level[to], level[i] + 1); });
    const uint32_t scope = scopes.ScopeOf(i);
    if (scope == 0 && RunsOnHost(reader, reader.Node(i))) continue;
    std::vector<uint32_t>& nodes =
        on_level[uint64_t{scope} << 32 | (scope == 0 ? sections.of_node[i] : 0)];
    if (nodes.size() <= level[i]) nodes.resize(level[i] + 1);
    ++nodes[level[i]];
  }
  uint64_t branches = 0;
  for (const auto& [graph, nodes] : on_level) {
    branches += std::min(*std::max_element(nodes.begin(), nodes.end()), kMostNodesSideBySide);
  }
  return branches;
}

std::vector<std::pair<uint32_t, uint32_t>> EdgesAgainstWidth(
    const wire::GraphReader& reader,
    const std::function<std::optional<uint64_t>(uint32_t node)>& part) {
  std::vector<std::pair<uint32_t, uint32_t>> added;
  if (reader.nodes() < kManyGraphNodes) return added;
  const EdgesOut edges(reader);
  std::vector<uint32_t> level(reader.nodes());
  std::map<std::pair<uint64_t, uint32_t>, std::vector<uint32_t>> side_by_side;
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    edges.ForEach(i, [&](uint32_t to) { level[to] = std::max(level[to], level[i] + 1); });
    const std::optional<uint64_t> of = part(i);
    if (!of.has_value()) continue;
    std::vector<uint32_t>& nodes = side_by_side[{*of, level[i]}];
    if (nodes.size() >= kMostNodesSideBySide) {
      added.emplace_back(nodes[nodes.size() - kMostNodesSideBySide], i);
    }
    nodes.push_back(i);
  }
  return added;
}

}  // namespace gpuloom::executor
