// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy_parser.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "agent/cat.h"
#include "agent/node/size.h"

namespace gpuloom {
namespace {

constexpr std::array<std::string_view, 3> kTopKeys = {"defaults", "namespaces", "overcommit"};
constexpr std::array<std::string_view, 2> kRuleKeys = {"memory", "trustDomain"};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      const bool same = absl::ascii_tolower(a[i - 1]) == absl::ascii_tolower(b[j - 1]);
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (same ? 0 : 1)});
      diagonal = above;
    }
  }
  return row[b.size()];
}

bool IsDnsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 && std::all_of(text.begin(), text.end(), [](char c) {
    return absl::ascii_isdigit(c) || absl::ascii_islower(c) || c == '-';
  });
}

bool IsPlain(const YAML::Node& node) { return node.Tag() == "?"; }

// What is written without quotes, and what readers of YAML take for something else than text: a
// number, a date, a truth value. Some would hand on another word than the one that was written.
bool IsNoText(const YAML::Node& node) {
  if (!IsPlain(node)) return false;
  const std::string text = absl::AsciiStrToLower(node.Scalar());
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n"}) {
    if (text == word) return true;
  }
  const std::string digits = text.substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || !absl::ascii_isdigit(digits[0])) return false;
  char* end = nullptr;
  (void)strtod(digits.c_str(), &end);  // hexadecimal ones and those with an exponent too
  if (*end == '\0') return true;
  const bool has_base = digits.starts_with("0b") || digits.starts_with("0o");
  return digits.find_first_not_of("0123456789-", has_base ? 2 : 0) == std::string::npos;
}

// Where a document begins, and nothing of what is in it.
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

// The line of a second document, from 0. Not by YAML::LoadAll: where no node can begin (", a"), it finds empty documents
// without end.
std::optional<int> SecondDocument(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart first, second;
  if (!parser.HandleNextDocument(first) || !parser.HandleNextDocument(second)) return std::nullopt;
  if (second.mark.pos == first.mark.pos) {
    throw YAML::ParserException(first.mark, "nothing can begin with this");
  }
  return second.mark.line;
}

// One parse; holds the file name so that every message can carry it.
class Parser {
 public:
  explicit Parser(const std::string& file) : file_(file) {}

  absl::StatusOr<Policy> Parse(const std::string& text) {
    Policy policy;
    policy.file = file_;
    YAML::Node root;
    try {
      if (const std::optional<int> line = SecondDocument(text)) {
        return absl::InvalidArgumentError(
            Cat(file_, ":", *line + 1, ": a second YAML document: a policy is one"));
      }
      root = YAML::Load(text);
    } catch (const YAML::Exception& e) {
      return absl::InvalidArgumentError(Cat(file_, ":", e.mark.line + 1, ": not YAML: ", e.msg));
    }
    if (!root.IsDefined() || root.IsNull()) return policy;
    if (!root.IsMap())
      return At(root, "", "a policy is a map with the keys defaults, namespaces, overcommit");
    if (absl::Status status = CheckKeys(root, "", kTopKeys); !status.ok()) return status;
    if (const YAML::Node node = root["overcommit"]) {
      if (!node.IsScalar() || !IsPlain(node) ||
          (node.Scalar() != "true" && node.Scalar() != "false")) {
        return At(node, "overcommit", "write true or false, without quotes");
      }
      policy.overcommit = node.Scalar() == "true";
    }
    if (const YAML::Node node = root["defaults"]; node && !node.IsNull()) {
      if (absl::Status status = ParseRule(node, "defaults", &policy.defaults); !status.ok())
        return status;
    }
    if (const YAML::Node node = root["namespaces"]; node && !node.IsNull()) {
      if (absl::Status status = ParseNamespaces(node, &policy); !status.ok()) return status;
    }
    return policy;
  }

 private:
  absl::Status At(const YAML::Node& node, const std::string& key,
                  const std::string& message) const {
    return absl::InvalidArgumentError(
        Cat(file_, ":", node.Mark().line + 1, ": ", key, key.empty() ? "" : ": ", message));
  }

  absl::Status CheckKeys(const YAML::Node& map, const std::string& path,
                         std::span<const std::string_view> known) const {
    std::map<std::string, int> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) return At(entry.first, path, "a key must be a word");
      const std::string key = entry.first.Scalar();
      const std::string full = path.empty() ? key : Cat(path, ".", key);
      const int line = entry.first.Mark().line + 1;
      if (const auto [first, is_new] = seen.emplace(key, line); !is_new) {
        return At(entry.first, full, Cat("written twice, first in line ", first->second));
      }
      if (known.empty() || std::find(known.begin(), known.end(), key) != known.end()) continue;
      std::string_view nearest = known[0];
      for (const std::string_view candidate : known) {
        if (EditDistance(key, candidate) < EditDistance(key, nearest)) nearest = candidate;
      }
      // A third of the letters wrong is a typo, more is another word.
      const bool is_typo = EditDistance(key, nearest) <= std::max<size_t>(1, nearest.size() / 3);
      std::string list;
      for (const std::string_view word : known) list += Cat(list.empty() ? "" : ", ", word);
      return At(entry.first, full,
                is_typo ? Cat("unknown key; did you mean ", nearest, "?")
                        : Cat("unknown key; known here: ", list));
    }
    return absl::OkStatus();
  }

  absl::Status ParseNamespaces(const YAML::Node& map, Policy* policy) const {
    if (!map.IsMap())
      return At(map, "namespaces", "must be a map from a namespace or glob to its settings");
    if (absl::Status status = CheckKeys(map, "namespaces", {}); !status.ok()) return status;
    for (const auto& entry : map) {
      PolicyRule rule;
      rule.pattern = entry.first.Scalar();
      const std::string path = Cat("namespaces.", rule.pattern);
      std::string letters = rule.pattern;
      std::replace_if(
          letters.begin(), letters.end(), [](char c) { return c == '*' || c == '?'; }, 'x');
      if (!IsDnsLabel(letters)) {
        return At(entry.first, path,
                  "not a namespace name or glob: lower-case letters, digits, -, * and ?");
      }
      if (!entry.second.IsNull()) {
        if (absl::Status status = ParseRule(entry.second, path, &rule); !status.ok()) return status;
      }
      policy->namespaces.push_back(rule);
    }
    return absl::OkStatus();
  }

  absl::Status ParseRule(const YAML::Node& map, const std::string& path, PolicyRule* rule) const {
    if (!map.IsMap()) return At(map, path, "must be a map with memory and trustDomain");
    if (absl::Status status = CheckKeys(map, path, kRuleKeys); !status.ok()) return status;
    if (const YAML::Node node = map["memory"]) {
      const std::string key = path + ".memory";
      if (!node.IsScalar()) return At(node, key, "write a size like 8GiB, or auto");
      MemoryRule memory;
      memory.line = node.Mark().line + 1;
      if (node.Scalar() != "auto") {
        std::string error;
        const std::optional<uint64_t> size = ParseSize(node.Scalar(), &error);
        if (!size) return At(node, key, Cat(error, ", or auto"));
        // Bytes by themselves are a number in YAML, which some tools write anew as 4.29e+09.
        if (node.Scalar().find('i') == std::string::npos) {
          return At(node, key,
                    Cat("size '", node.Scalar(), "' has no unit: write KiB, MiB, GiB or TiB"));
        }
        if (*size < kQuotaGranuleBytes) {
          return At(node, key, "less than 2MiB, the smallest piece of GPU memory");
        }
        memory.is_auto = false;
        memory.slot_bytes = *size;
      }
      rule->memory = memory;
    }
    if (const YAML::Node node = map["trustDomain"]) {
      const std::string key = path + ".trustDomain";
      if (!node.IsScalar() || !IsDnsLabel(node.Scalar())) {
        return At(node, key,
                  "write pod, namespace, node, or a name of lower-case letters, digits and -");
      }
      if (IsNoText(node)) {
        return At(node, key,
                  Cat("write it in quotes, \"", node.Scalar(),
                      "\": without them YAML has it for a number, a date or a truth value"));
      }
      TrustDomainRule domain;
      if (node.Scalar() == "pod") {
        domain.kind = TrustDomainRule::Kind::kPod;
      } else if (node.Scalar() == "node") {
        domain.kind = TrustDomainRule::Kind::kNode;
      } else if (node.Scalar() != "namespace") {
        domain.kind = TrustDomainRule::Kind::kNamed;
        domain.name = node.Scalar();
      }
      rule->trust_domain = domain;
    }
    return absl::OkStatus();
  }

  const std::string& file_;
};

}  // namespace

absl::StatusOr<Policy> ParsePolicy(const std::string& file, const std::string& text) {
  return Parser(file).Parse(text);
}

}  // namespace gpuloom
