// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/graph/graph_width.h"

#include <algorithm>
#include <map>

#include "agent/executor/graph/graph_edges.h"

namespace gpuloom::executor {
namespace {

// Calls `f(node, level)` for each node, in their order. A node's level is the longest path to it.
template <typename F>
void ForEachWithLevel(const wire::GraphReader& reader, F f) {
  const EdgesOut edges(reader);
  std::vector<uint32_t> level(reader.nodes());
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    edges.ForEach(i, [&](uint32_t to) { level[to] = std::max(level[to], level[i] + 1); });
    f(i, level[i]);
  }
}

}  // namespace

uint64_t BranchesOf(const wire::GraphReader& reader, const wire::GraphScopes& scopes,
                    const GraphSections& sections) {
  std::map<uint64_t, std::vector<uint32_t>> on_level;  // by graph
  ForEachWithLevel(reader, [&](uint32_t node, uint32_t level) {
    const uint32_t scope = scopes.ScopeOf(node);
    if (scope == 0 && RunsOnHost(reader, reader.Node(node))) return;
    std::vector<uint32_t>& nodes =
        on_level[uint64_t{scope} << 32 | (scope == 0 ? sections.of_node[node] : 0)];
    if (nodes.size() <= level) nodes.resize(level + 1);
    ++nodes[level];
  });
  uint64_t branches = 0;
  for (const auto& [graph, nodes] : on_level) {
    branches += std::min(*std::max_element(nodes.begin(), nodes.end()), kMostNodesSideBySide);
  }
  return branches;
}

uint32_t HeadsOf(const wire::GraphReader& reader, const wire::GraphScopes& scopes) {
  const EdgesOut edges(reader);
  std::vector<bool> is_behind(reader.nodes());
  uint32_t heads = 0;
  for (uint32_t i = 0; i < reader.nodes(); ++i) {
    const bool is_work = reader.Node(i).kind != wire::GraphNodeKind::kEmpty;
    heads += is_work && !is_behind[i] && scopes.ScopeOf(i) == 0;
    if (is_work || is_behind[i]) edges.ForEach(i, [&](uint32_t to) { is_behind[to] = true; });
  }
  return std::min(heads, kMostNodesSideBySide);
}

std::vector<std::pair<uint32_t, uint32_t>> EdgesAgainstWidth(
    const wire::GraphReader& reader,
    const std::function<std::optional<uint64_t>(uint32_t node)>& part) {
  std::vector<std::pair<uint32_t, uint32_t>> added;
  if (reader.nodes() < kManyGraphNodes) return added;
  std::map<std::pair<uint64_t, uint32_t>, std::vector<uint32_t>> side_by_side;
  ForEachWithLevel(reader, [&](uint32_t node, uint32_t level) {
    const std::optional<uint64_t> of = part(node);
    if (!of.has_value()) return;
    std::vector<uint32_t>& nodes = side_by_side[{*of, level}];
    if (nodes.size() >= kMostNodesSideBySide) {
      added.emplace_back(nodes[nodes.size() - kMostNodesSideBySide], node);
    }
    nodes.push_back(node);
  });
  return added;
}

}  // namespace gpuloom::executor
