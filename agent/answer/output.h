// SPDX-License-Identifier: Apache-2.0
// The formats of `-o`. Pure; safe from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace gpuloom {

using Json = nlohmann::ordered_json;

enum class Format { kTable, kJson, kYaml };

// The format with this name on the command line.
std::optional<Format> FormatNamed(std::string_view name);

// Formats the fields in their order as JSON or YAML (not kTable), ended by a newline. Bytes that are not UTF-8 are
// replaced. Text stays text: "true" and "12" are quoted in YAML, for readers of any YAML version.
std::string FormatDocument(const Json& document, Format format);

}  // namespace gpuloom
