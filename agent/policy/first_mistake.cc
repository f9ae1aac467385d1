// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/first_mistake.h"

#include <algorithm>
#include <map>

#include "agent/policy/nearest_word.h"
#include "agent/policy/yaml_document.h"

namespace gpuloom {

bool FirstMistake::Fail(const SourcePosition& place, const std::string& key,
                        const std::string& message) const {
  *error_ = file_ + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) + ": " +
            key + (key.empty() ? "" : ": ") + message;
  return false;
}
bool FirstMistake::Fail(const YAML::Node& node, const std::string& key,
                        const std::string& message) const {
  return Fail(PositionOf(node), key, message);
}

bool FirstMistake::CheckKeys(const YAML::Node& map, const std::string& path,
                             std::span<const std::string_view> known) const {
  std::map<std::string, int> seen;
  for (const auto& entry : map) {
    if (!entry.first.IsScalar()) return Fail(entry.first, path, "a key must be a word");
    const std::string key = entry.first.Scalar();
    const std::string full = PathBelow(path, key);
    const int line = PositionOf(entry.first).line;
    if (const auto [first, is_new] = seen.emplace(key, line); !is_new) {
      return Fail(entry.first, full,
                  "written twice, first in line " + std::to_string(first->second));
    }
    if (known.empty() || std::find(known.begin(), known.end(), key) != known.end()) continue;
    const std::string nearest(NearestWord(key, known));
    return Fail(entry.first, full,
                nearest.empty() ? "unknown key; known here: " + ListWords(known)
                                : "unknown key; did you mean " + nearest + "?");
  }
  return true;
}

std::string PathBelow(const std::string& path, const std::string& key) {
  std::string below = path;
  if (!path.empty()) below += ".";
  below += key;
  return below;
}

}  // namespace gpuloom
