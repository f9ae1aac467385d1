// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_mistakes.h"

#include <algorithm>
#include <iterator>

#include "agent/policy/nearest_word.h"
#include "agent/policy/yaml_document.h"

namespace gpuloom {

void PolicyMistakes::Add(const SourcePosition& place, const std::string& key,
                         const std::string& message) {
  ++count_;
  kept_.emplace(std::pair(place.line, place.column), file_ + ":" + std::to_string(place.line) +
                                                         ":" + std::to_string(place.column) + ": " +
                                                         key + (key.empty() ? "" : ": ") + message);
  if (kept_.size() > kMostKept) kept_.erase(std::prev(kept_.end()));
}

void PolicyMistakes::Add(const YAML::Node& node, const std::string& key,
                         const std::string& message) {
  Add(PositionOf(node), key, message);
}

void PolicyMistakes::CheckKeys(const YAML::Node& map, const std::string& path,
                               std::span<const std::string_view> known) {
  std::map<std::string, int> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) {
      Add(entry.first, path, "a key must be a word");
      continue;
    }
    const std::string key = entry.first.Scalar();
    const std::string full = PathBelow(path, key);
    const int line = PositionOf(entry.first).line;
    if (const auto [first, is_new] = seen.emplace(key, line); !is_new) {
      Add(entry.first, full, "written twice, first in line " + std::to_string(first->second));
      continue;
    }
    if (known.empty() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest(NearestWord(key, known));
    Add(entry.first, full,
        nearest.empty() ? "unknown key; known here: " + ListWords(known)
                        : "unknown key; did you mean " + nearest + "?");
  }
}

std::vector<std::string> PolicyMistakes::Messages() const {
  std::vector<std::string> messages;
  for (const auto& [place, message] : kept_) messages.push_back(message);
  return messages;
}

std::string PathBelow(const std::string& path, const std::string& key) {
  std::string below = path;
  if (!path.empty()) below += ".";
  below += key;
  return below;
}

}  // namespace gpuloom
