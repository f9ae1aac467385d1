// SPDX-License-Identifier: Apache-2.0
// The mistakes in a policy's text, each a message: "policy.yaml:3:5: namespaces.team-a.memory: what is wrong". What checks a
// part of the text adds its mistakes and goes on with the next part. One thread.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/policy/policy.h"

namespace YAML {
class Node;
}

namespace gpuloom {

class PolicyMistakes {
 public:
  // Of more mistakes the first in the text are kept and the others counted: nobody reads on, and a file of 1 MiB can have
  // hundreds of thousands.
  static constexpr size_t kMostKept = 20;

  // `file` is used in messages only.
  explicit PolicyMistakes(std::string file) : file_(std::move(file)) {}

  void Add(const SourcePosition& place, const std::string& key, const std::string& message);
  void Add(const YAML::Node& node, const std::string& key, const std::string& message);

  // Each key of the map is a word, known and written once: yaml-cpp itself accepts one that is written twice. If `known`
  // is empty, all keys are names and allowed.
  void CheckKeys(const YAML::Node& map, const std::string& path,
                 std::span<const std::string_view> known);

  const std::string& file() const { return file_; }
  // With those that are not kept.
  size_t count() const { return count_; }
  // In the text's order.
  std::vector<std::string> Messages() const;

 private:
  const std::string file_;
  std::multimap<std::pair<int, int>, std::string> kept_;  // by line and column
  size_t count_ = 0;
};

// The path of a key in messages; the path of the file's top is empty.
std::string PathBelow(const std::string& path, const std::string& key);

}  // namespace gpuloom
