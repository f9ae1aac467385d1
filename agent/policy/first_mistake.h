// SPDX-License-Identifier: Apache-2.0
// The first mistake in a policy's text, as one message: "policy.yaml:3:5: namespaces.team-a.memory: what is wrong". What
// checks a part of the text says it here and ends. The message's string is the caller's and outlives this. One thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "agent/policy/policy.h"

namespace gpuloom {

class FirstMistake {
 public:
  // `file` is used in messages only.
  FirstMistake(std::string file, std::string* error) : file_(std::move(file)), error_(error) {}

  // Always false, so that a step can return it.
  bool Fail(const SourcePosition& place, const std::string& key, const std::string& message) const;
  bool Fail(const YAML::Node& node, const std::string& key, const std::string& message) const;

  // Each key of the map is a word, known and written once: yaml-cpp itself accepts one that is written twice. If `known`
  // is empty, all keys are names and allowed.
  [[nodiscard]] bool CheckKeys(const YAML::Node& map, const std::string& path,
                               std::span<const std::string_view> known) const;

 private:
  const std::string file_;
  std::string* const error_;
};

// The path of a key in messages; the path of the file's top is empty.
std::string PathBelow(const std::string& path, const std::string& key);

}  // namespace gpuloom
