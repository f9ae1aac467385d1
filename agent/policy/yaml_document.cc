// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/yaml_document.h"

#include <yaml-cpp/eventhandler.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

namespace gpuloom {
namespace {

// Notes where a document begins, and skips its content.
class DocumentStart : public YAML::EventHandler {
 public:
  YAML::Mark mark;
  void OnDocumentStart(const YAML::Mark& at) override { mark = at; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t,
                const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                  YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}
};

// yaml-cpp counts from 0, editors from 1.
SourcePosition PositionOf(const YAML::Mark& mark) { return {mark.line + 1, mark.column + 1}; }

// Finds where a second document begins. Does not use YAML::LoadAll, which returns endless empty documents where no node
// can begin (", a").
std::optional<SourcePosition> SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart first, second;
  if (!parser.HandleNextDocument(first) || !parser.HandleNextDocument(second)) return std::nullopt;
  // The parser has not moved on, and never would.
  if (second.mark.pos == first.mark.pos) {
    throw YAML::ParserException(first.mark, "nothing can begin with this");
  }
  return PositionOf(second.mark);
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

SourcePosition PositionOf(const YAML::Node& node) { return PositionOf(node.Mark()); }

std::optional<YAML::Node> LoadDocument(const std::string& text, YamlMistake* mistake) {
  try {
    if (const std::optional<SourcePosition> second = SecondDocument(text)) {
      *mistake = {*second, "a second YAML document: a policy is one"};
      return std::nullopt;
    }
    return YAML::Load(text);
  } catch (const YAML::Exception& e) {
    *mistake = {PositionOf(e.mark), "not YAML: " + e.msg};
    return std::nullopt;
  }
}

// yaml-cpp's tag of a scalar without quotes; with quotes it is "!".
bool IsPlain(const YAML::Node& scalar) { return scalar.Tag() == "?"; }

bool IsNoText(const YAML::Node& scalar) {
  if (!IsPlain(scalar)) return false;
  std::string text = scalar.Scalar();
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  // YAML 1.1's truth values, of which 1.2 has left two.
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (text == word) return true;
  }
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || !IsDigit(digits[0])) return false;
  char* end = nullptr;
  (void)strtod(digits.c_str(), &end);  // hexadecimal ones and those with an exponent too
  if (*end == '\0') return true;
  const bool has_base = digits.starts_with("0b") || digits.starts_with("0o");
  return digits.find_first_not_of("0123456789-", has_base ? 2 : 0) == std::string::npos;
}

std::optional<bool> TruthValue(const YAML::Node& node) {
  if (!node.IsScalar() || !IsPlain(node)) return std::nullopt;
  if (node.Scalar() == "true") return true;
  if (node.Scalar() == "false") return false;
  return std::nullopt;
}

std::optional<uint32_t> WholeNumber(const YAML::Node& node, uint32_t least, uint32_t most) {
  return node.IsScalar() && IsPlain(node) ? WholeNumber(node.Scalar(), least, most) : std::nullopt;
}

std::optional<uint32_t> WholeNumber(std::string_view digits, uint32_t least, uint32_t most) {
  // Another base for some readers of YAML.
  if (digits.size() > 1 && digits[0] == '0') return std::nullopt;
  uint32_t number = 0;
  const char* end_of_digits = digits.data() + digits.size();
  const auto [end, result] = std::from_chars(digits.data(), end_of_digits, number);
  if (result != std::errc() || end != end_of_digits) return std::nullopt;
  return number >= least && number <= most ? std::optional(number) : std::nullopt;
}

}  // namespace gpuloom
