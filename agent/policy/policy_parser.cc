// SPDX-License-Identifier: Apache-2.0
// One recursive descent over yaml-cpp's nodes, which goes on after a mistake. What one rule says against another is judged
// only where each could be read: a mistyped priority must not be followed by messages about the pods below it.
#include "agent/policy/policy_parser.h"

#include <array>
#include <span>
#include <utility>

#include "agent/policy/nearest_word.h"
#include "agent/policy/policy_mistakes.h"
#include "agent/policy/policy_values.h"
#include "agent/policy/settings.h"
#include "agent/policy/yaml_document.h"

namespace gpuloom {
namespace {

using Words = std::span<const std::string_view>;

constexpr std::array<std::string_view, 3> kTopKeys = {"defaults", "namespaces", "overcommit"};
// The keys that a pod's rule may set come first, `pods` last.
constexpr std::array<std::string_view, 15> kKeys = {
    "weight",     "priority",      "timeShareMax", "smPercent",   "smReserved",
    "memoryWait", "maxKernelTime", "trace",        "deny",        "gpus",
    "memory",     "trustDomain",   "maxTenants",   "rescueAfter", "pods"};
constexpr Words kNamespaceKeys = kKeys;
// Without `pods`: defaults are for all namespaces, and a pod's name means something only within
// one.
constexpr Words kDefaultsKeys = kNamespaceKeys.first(14);
constexpr Words kPodKeys = kNamespaceKeys.first(10);

// One parse.
class Parser {
 public:
  explicit Parser(PolicyMistakes* mistakes) : mistakes_(mistakes), values_(mistakes) {}

  std::optional<Policy> Parse(const std::string& text, EmptyText empty) {
    policy_.file = mistakes_->file();
    policy_.defaults.path = "defaults";
    YamlMistake mistake;
    const std::optional<YAML::Node> root = LoadDocument(text, &mistake);
    if (!root) {
      mistakes_->Add(mistake.place, "", mistake.message);
    } else if (root->IsDefined() && !root->IsNull()) {
      ParseRoot(*root);
    } else if (empty == EmptyText::kMistake) {
      AddEmpty(*root);
    }
    if (mistakes_->count() == 0) CheckPods();
    if (mistakes_->count() != 0) return std::nullopt;
    return std::move(policy_);
  }

 private:
  // Only a null that is written has a place.
  void AddEmpty(const YAML::Node& root) {
    const bool has_place = root.IsDefined() && !root.Mark().is_null();
    mistakes_->Add(has_place ? PositionOf(root) : SourcePosition{1, 1}, "",
                   "is empty; write {} for a policy without rules");
  }

  void ParseRoot(const YAML::Node& root) {
    if (!root.IsMap()) {
      return mistakes_->Add(root, "",
                            "a policy is a map with the keys defaults, namespaces, overcommit");
    }
    mistakes_->CheckKeys(root, "", kTopKeys);
    if (const YAML::Node node = root["overcommit"]) {
      std::optional<Setting<bool>> overcommit;
      values_.ParseTruth(node, "overcommit", &overcommit);
      if (overcommit) policy_.overcommit = overcommit->value;
    }
    // A key without a value, whose lines are commented out, for example, is as one that is not
    // there.
    if (const YAML::Node node = root["defaults"]; node && !node.IsNull()) {
      ParseRule(node, kDefaultsKeys, &policy_.defaults);
    }
    if (const YAML::Node node = root["namespaces"]; node && !node.IsNull()) ParseNamespaces(node);
  }

  void ParseNamespaces(const YAML::Node& map) {
    if (!map.IsMap()) {
      return mistakes_->Add(map, "namespaces",
                            "must be a map from a namespace or glob to its settings");
    }
    mistakes_->CheckKeys(map, "namespaces", {});
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) continue;
      PolicyRule rule;
      rule.pattern = entry.first.Scalar();
      rule.path = "namespaces." + rule.pattern;
      if (!IsLabelOrGlob(rule.pattern)) {
        mistakes_->Add(entry.first, rule.path,
                       "not a namespace name or glob: lower-case letters, digits, -, * and ?");
      }
      if (!entry.second.IsNull()) ParseRule(entry.second, kNamespaceKeys, &rule);
      policy_.namespaces.push_back(std::move(rule));
    }
  }

  void ParseRule(const YAML::Node& map, Words known, PolicyRule* rule) {
    ParsePodKeys(map, rule->path, known, rule);
    if (!map.IsMap()) return;
    if (const YAML::Node node = map["memory"]) {
      values_.ParseMemory(node, rule->path + ".memory", &rule->memory);
    }
    if (const YAML::Node node = map["trustDomain"]) {
      values_.ParseTrustDomain(node, rule->path + ".trustDomain", &rule->trust_domain);
    }
    if (const YAML::Node node = map["maxTenants"]) {
      values_.ParseMaxTenants(node, rule->path + ".maxTenants", &rule->max_tenants);
    }
    if (const YAML::Node node = map["rescueAfter"]) {
      values_.ParseRescueAfter(node, rule->path + ".rescueAfter", &rule->rescue_after_ms);
    }
    if (const YAML::Node pods = map["pods"]; pods && !pods.IsNull()) ParsePods(pods, rule);
  }

  // A key is POD or POD/CONTAINER. No name or glob of a pod has a slash.
  void ParsePods(const YAML::Node& map, PolicyRule* space) {
    const std::string path = space->path + ".pods";
    if (!map.IsMap()) {
      return mistakes_->Add(map, path, "must be a map from a pod's name or glob to its settings");
    }
    mistakes_->CheckKeys(map, path, {});
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) continue;
      const std::string name = entry.first.Scalar();
      const size_t slash = name.find('/');
      PodRule rule;
      rule.path = PathBelow(path, name);
      rule.pod = name.substr(0, slash);
      if (slash != name.npos) rule.container = name.substr(slash + 1);
      if (!IsPodOrGlob(rule.pod) || !IsLabelOrGlob(rule.container.value_or("*"))) {
        mistakes_->Add(entry.first, rule.path,
                       "not a pod's name or glob (lower-case letters, digits, -, ., * and ?), "
                       "or POD/CONTAINER");
      }
      if (!entry.second.IsNull()) ParsePodKeys(entry.second, rule.path, kPodKeys, &rule);
      space->pods.push_back(std::move(rule));
    }
  }

  // Parses the keys that a pod's rule may also have.
  void ParsePodKeys(const YAML::Node& map, const std::string& path, Words known, PodKeys* keys) {
    if (!map.IsMap())
      return mistakes_->Add(map, path, "must be a map with the keys " + ListWords(known));
    mistakes_->CheckKeys(map, path, known);
    if (const YAML::Node node = map["weight"]) {
      values_.ParseWeight(node, path + ".weight", &keys->weight);
    }
    if (const YAML::Node node = map["priority"]) {
      values_.ParsePriority(node, path + ".priority", &keys->priority);
    }
    if (const YAML::Node node = map["timeShareMax"]) {
      values_.ParsePercent(node, path + ".timeShareMax", &keys->time_share_max_percent);
    }
    if (const YAML::Node node = map["smPercent"]) {
      values_.ParsePercent(node, path + ".smPercent", &keys->sm_percent);
    }
    if (const YAML::Node node = map["smReserved"]) {
      values_.ParsePercent(node, path + ".smReserved", &keys->sm_reserved_percent);
      CheckReserved(node, path, *keys);
    }
    if (const YAML::Node node = map["memoryWait"]) {
      values_.ParseMemoryWait(node, path + ".memoryWait", &keys->memory_wait_s);
    }
    if (const YAML::Node node = map["maxKernelTime"]) {
      values_.ParseKernelTime(node, path + ".maxKernelTime", &keys->max_kernel_time);
    }
    if (const YAML::Node node = map["trace"]) {
      values_.ParseTrace(node, path + ".trace", &keys->trace);
    }
    if (const YAML::Node node = map["deny"]) {
      values_.ParseTruth(node, path + ".deny", &keys->deny);
    }
    if (const YAML::Node node = map["gpus"]) values_.ParseGpus(node, path + ".gpus", &keys->gpus);
  }

  // Only what stands in one rule is compared here.
  void CheckReserved(const YAML::Node& node, const std::string& path, const PodKeys& keys) {
    if (!keys.sm_percent || !keys.sm_reserved_percent ||
        keys.sm_reserved_percent->value <= keys.sm_percent->value) {
      return;
    }
    mistakes_->Add(node, path + ".smReserved",
                   "more than smPercent, " + std::to_string(keys.sm_percent->value) +
                       "%: nobody reserves what it may not use");
  }

  // Tenants choose their pods' names, so a pod's rule may not have more than its namespace.
  void CheckPods() {
    for (const PolicyRule& space : policy_.namespaces) {
      if (space.pods.empty()) continue;
      const NamespaceSettings settings = SettingsOfNamespace(policy_, space.pattern);
      for (const PodRule& pod : space.pods) {
        CheckPriority(pod, settings.priority.value);
        CheckTrace(pod, settings.trace.value);
      }
    }
  }

  void CheckPriority(const PodRule& pod, arbiter::Priority highest) {
    if (!pod.priority || arbiter::Index(pod.priority->value) >= arbiter::Index(highest)) return;
    const std::string_view own = kPriorityNames[arbiter::Index(pod.priority->value)];
    std::string message(own);
    message += " is above ";
    message += kPriorityNames[arbiter::Index(highest)];
    message += ", the namespace's, and tenants choose their pods' names: write priority: ";
    message += own;
    message += " for the namespace, and a lower one for its other pods";
    mistakes_->Add(pod.priority->place, pod.path + ".priority", message);
  }

  void CheckTrace(const PodRule& pod, TraceRule most) {
    if (!pod.trace || pod.trace->value == TraceRule::kNone || most == TraceRule::kOwn) return;
    mistakes_->Add(pod.trace->place, pod.path + ".trace",
                   "own is more than none, the namespace's, and tenants choose their pods' names: "
                   "write trace: own for the namespace, and trace: none for its other pods");
  }

  Policy policy_;
  PolicyMistakes* const mistakes_;
  const PolicyValues values_;
};

}  // namespace

std::optional<Policy> ParsePolicy(const std::string& text, PolicyMistakes* mistakes,
                                  EmptyText empty) {
  return Parser(mistakes).Parse(text, empty);
}

std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                  std::string* error, EmptyText empty) {
  PolicyMistakes mistakes(file);
  std::optional<Policy> policy = ParsePolicy(text, &mistakes, empty);
  if (!policy) *error = mistakes.Messages().front();
  return policy;
}

}  // namespace gpuloom
