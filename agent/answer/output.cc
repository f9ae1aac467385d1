// SPDX-License-Identifier: Apache-2.0
#include "agent/answer/output.h"

#include <algorithm>

namespace gpuloom {
namespace {

// Texts may come from tenants and need not be UTF-8, for which the library would throw.
std::string Dump(const Json& value, int indent) {
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// A text that every YAML reads as itself without quotes. All others are quoted, as JSON's, which YAML reads alike.
bool IsPlain(const std::string& text) {
  const auto is_safe = [](char c) {
    return IsLetter(c) || (c >= '0' && c <= '9') ||
           std::string_view("_-./").find(c) != std::string_view::npos;
  };
  // What begins with a digit or a sign may be a number or a date, in one version of YAML or
  // another.
  if (text.empty() || (!IsLetter(text[0]) && text[0] != '/')) return false;
  if (!std::ranges::all_of(text, is_safe)) return false;
  std::string lower = text;
  for (char& c : lower) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}) {
    if (lower == word) return false;
  }
  return true;
}

std::string Scalar(const Json& value) {
  if (value.is_string() && IsPlain(value.get_ref<const std::string&>())) {
    return value.get<std::string>();
  }
  return Dump(value, -1);  // of an empty list or map, too
}

std::string Key(const std::string& key) { return IsPlain(key) ? key : Dump(key, -1); }

// Adds lines; all but the first are indented by `indent` spaces.
void WriteYaml(const Json& value, size_t indent, std::string* text) {
  if (!value.is_structured() || value.empty()) {
    *text += Scalar(value) + "\n";
    return;
  }
  bool is_first = true;
  for (const auto& [key, part] : value.items()) {
    if (!is_first) text->append(indent, ' ');
    is_first = false;
    if (value.is_array()) {
      // An item begins on the line of its mark, and its further lines are indented as much as the
      // first.
      *text += "- ";
      WriteYaml(part, indent + 2, text);
      continue;
    }
    *text += Key(key) + ":";
    if (!part.is_structured() || part.empty()) {
      *text += " ";
      WriteYaml(part, indent, text);
    } else {
      *text += "\n" + std::string(indent + 2, ' ');
      WriteYaml(part, indent + 2, text);
    }
  }
}

}  // namespace

std::optional<Format> FormatNamed(std::string_view name) {
  if (name == "table") return Format::kTable;
  if (name == "json") return Format::kJson;
  if (name == "yaml") return Format::kYaml;
  return std::nullopt;
}

std::string FormatDocument(const Json& document, Format format) {
  if (format == Format::kJson) return Dump(document, 2) + "\n";
  std::string text;
  WriteYaml(document, 0, &text);
  return text;
}

}  // namespace gpuloom
