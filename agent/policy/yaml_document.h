// SPDX-License-Identifier: Apache-2.0
// A text that is one YAML document, and what its scalars are. Pure; safe from any thread.
#pragma once

#include <yaml-cpp/yaml.h>

#include <optional>
#include <string>
#include <string_view>

#include "agent/policy/policy.h"

namespace gpuloom {

struct YamlMistake {
  Place place;
  std::string message;
};

Place PlaceOf(const YAML::Node& node);

// nullopt, and what is wrong, when it is not YAML, or more than one document. Undefined for empty text.
[[nodiscard]] std::optional<YAML::Node> LoadDocument(const std::string& text, YamlMistake* mistake);

// Written without quotes.
bool IsPlain(const YAML::Node& scalar);

// What is written without quotes, and what readers of YAML take for something else than text: a
// number, a date, a truth value. Some would hand on another word than the one that was written.
bool IsNoText(const YAML::Node& scalar);

// nullopt unless it is true or false, without quotes.
std::optional<bool> TruthValue(const YAML::Node& node);

// nullopt unless it is a whole number from `least` to `most`, written in digits, without quotes.
std::optional<uint32_t> WholeNumber(const YAML::Node& node, uint32_t least, uint32_t most);
std::optional<uint32_t> WholeNumber(std::string_view digits, uint32_t least, uint32_t most);

}  // namespace gpuloom
