// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_width.h"

#include <algorithm>
#include <map>

#include "agent/executor/graph/graph_edges.h"

namespace gpuloom::executor {

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
