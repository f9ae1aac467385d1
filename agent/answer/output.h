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

// By its name on the command line.
std::optional<Format> FormatNamed(std::string_view name);

// The same fields in the same order, in JSON or in YAML, ended by a newline. What is no UTF-8 is replaced. A text stays one:
// "true" and "12" are quoted in YAML, of whichever version its reader is. Not for kTable.
std::string FormatDocument(const Json& document, Format format);

}  // namespace gpuloom
