// SPDX-License-Identifier: Apache-2.0
// Parses a text that is one YAML document, and judges its scalars. Pure; safe from any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>

#include "agent/policy/policy.h"

namespace gpuloom {

struct YamlMistake {
  SourcePosition place;
  std::string message;
};

SourcePosition PositionOf(const YAML::Node& node);

// nullopt with the mistake if it is not YAML, or more than one document. Of a text without any node it is
// null, and has no place.
[[nodiscard]] std::optional<YAML::Node> LoadDocument(const std::string& text, YamlMistake* mistake);

// Whether it is written without quotes.
bool IsPlain(const YAML::Node& scalar);

// Whether it is written without quotes and YAML readers take it for something other than text: a number, a date, a
// truth value. Some readers would turn it into another word than the one that was written.
bool IsNoText(const YAML::Node& scalar);

// nullopt unless it is true or false, without quotes.
std::optional<bool> TruthValue(const YAML::Node& node);

// nullopt unless it is a whole number from `least` to `most`, written in digits, without quotes.
std::optional<uint32_t> WholeNumber(const YAML::Node& node, uint32_t least, uint32_t most);
std::optional<uint32_t> WholeNumber(std::string_view digits, uint32_t least, uint32_t most);

}  // namespace gpuloom
