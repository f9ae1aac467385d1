// SPDX-License-Identifier: Apache-2.0
// One recursive descent over yaml-cpp's nodes. It ends at the first mistake: one message with its
// place is easier to act on than all that follows from it.
#include "agent/policy/policy_parser.h"

#include <array>
#include <span>
#include <utility>

#include "agent/policy/first_mistake.h"
#include "agent/policy/nearest_word.h"
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

// One parse. Each step says whether all was right; the first mistake is kept as the parse's.
class Parser {
 public:
  Parser(const std::string& file, std::string* error) : mistake_(file, error), values_(&mistake_) {
    policy_.file = file;
  }

  std::optional<Policy> Parse(const std::string& text, EmptyText empty) {
    YamlMistake mistake;
    const std::optional<YAML::Node> root = LoadDocument(text, &mistake);
    if (!root) {
      mistake_.Fail(mistake.place, "", mistake.message);
      return std::nullopt;
    }
    policy_.defaults.path = "defaults";
    const bool is_empty = !root->IsDefined() || root->IsNull();
    if (is_empty && empty == EmptyText::kMistake) {
      FailAsEmpty(*root);
      return std::nullopt;
    }
    if (!is_empty && !(ParseRoot(*root) && CheckPriorities() && CheckTraces())) return std::nullopt;
    return std::move(policy_);
  }

 private:
  // Only a null that is written has a place.
  void FailAsEmpty(const YAML::Node& root) {
    const bool has_place = root.IsDefined() && !root.Mark().is_null();
    mistake_.Fail(has_place ? PositionOf(root) : SourcePosition{1, 1}, "",
                  "is empty; write {} for a policy without rules");
  }

  bool ParseRoot(const YAML::Node& root) {
    if (!root.IsMap()) {
      return mistake_.Fail(root, "",
                           "a policy is a map with the keys defaults, namespaces, overcommit");
    }
    if (!mistake_.CheckKeys(root, "", kTopKeys)) return false;
    if (const YAML::Node node = root["overcommit"]) {
      std::optional<Setting<bool>> overcommit;
      if (!values_.ParseTruth(node, "overcommit", &overcommit)) return false;
      policy_.overcommit = overcommit->value;
    }
    // A key without a value, whose lines are commented out, for example, is as one that is not
    // there.
    if (const YAML::Node node = root["defaults"]; node && !node.IsNull()) {
      if (!ParseRule(node, kDefaultsKeys, &policy_.defaults)) return false;
    }
    const YAML::Node node = root["namespaces"];
    return !node || node.IsNull() || ParseNamespaces(node);
  }

  bool ParseNamespaces(const YAML::Node& map) {
    if (!map.IsMap()) {
      return mistake_.Fail(map, "namespaces",
                           "must be a map from a namespace or glob to its settings");
    }
    if (!mistake_.CheckKeys(map, "namespaces", {})) return false;
    for (const auto& entry : map) {
      PolicyRule rule;
      rule.pattern = entry.first.Scalar();
      rule.path = "namespaces." + rule.pattern;
      if (!IsLabelOrGlob(rule.pattern)) {
        return mistake_.Fail(
            entry.first, rule.path,
            "not a namespace name or glob: lower-case letters, digits, -, * and ?");
      }
      if (!entry.second.IsNull() && !ParseRule(entry.second, kNamespaceKeys, &rule)) return false;
      policy_.namespaces.push_back(std::move(rule));
    }
    return true;
  }

  bool ParseRule(const YAML::Node& map, Words known, PolicyRule* rule) {
    if (!ParsePodKeys(map, rule->path, known, rule)) return false;
    if (const YAML::Node node = map["memory"]) {
      if (!values_.ParseMemory(node, rule->path + ".memory", &rule->memory)) return false;
    }
    if (const YAML::Node node = map["trustDomain"]) {
      if (!values_.ParseTrustDomain(node, rule->path + ".trustDomain", &rule->trust_domain)) {
        return false;
      }
    }
    if (const YAML::Node node = map["maxTenants"]) {
      if (!values_.ParseMaxTenants(node, rule->path + ".maxTenants", &rule->max_tenants)) {
        return false;
      }
    }
    if (const YAML::Node node = map["rescueAfter"]) {
      if (!values_.ParseRescueAfter(node, rule->path + ".rescueAfter", &rule->rescue_after_ms)) {
        return false;
      }
    }
    const YAML::Node pods = map["pods"];
    return !pods || pods.IsNull() || ParsePods(pods, rule);
  }

  // A key is POD or POD/CONTAINER. No name or glob of a pod has a slash.
  bool ParsePods(const YAML::Node& map, PolicyRule* space) {
    const std::string path = space->path + ".pods";
    if (!map.IsMap()) {
      return mistake_.Fail(map, path, "must be a map from a pod's name or glob to its settings");
    }
    if (!mistake_.CheckKeys(map, path, {})) return false;
    for (const auto& entry : map) {
      const std::string name = entry.first.Scalar();
      const size_t slash = name.find('/');
      PodRule rule;
      rule.path = PathBelow(path, name);
      rule.pod = name.substr(0, slash);
      if (slash != name.npos) rule.container = name.substr(slash + 1);
      if (!IsPodOrGlob(rule.pod) || !IsLabelOrGlob(rule.container.value_or("*"))) {
        return mistake_.Fail(
            entry.first, rule.path,
            "not a pod's name or glob (lower-case letters, digits, -, ., * and ?), "
            "or POD/CONTAINER");
      }
      if (!entry.second.IsNull() && !ParsePodKeys(entry.second, rule.path, kPodKeys, &rule)) {
        return false;
      }
      space->pods.push_back(std::move(rule));
    }
    return true;
  }

  // Parses the keys that a pod's rule may also have.
  bool ParsePodKeys(const YAML::Node& map, const std::string& path, Words known, PodKeys* keys) {
    if (!map.IsMap())
      return mistake_.Fail(map, path, "must be a map with the keys " + ListWords(known));
    if (!mistake_.CheckKeys(map, path, known)) return false;
    if (const YAML::Node node = map["weight"]) {
      if (!values_.ParseWeight(node, path + ".weight", &keys->weight)) return false;
    }
    if (const YAML::Node node = map["priority"]) {
      if (!values_.ParsePriority(node, path + ".priority", &keys->priority)) return false;
    }
    if (const YAML::Node node = map["timeShareMax"]) {
      if (!values_.ParsePercent(node, path + ".timeShareMax", &keys->time_share_max_percent))
        return false;
    }
    if (const YAML::Node node = map["smPercent"]) {
      if (!values_.ParsePercent(node, path + ".smPercent", &keys->sm_percent)) return false;
    }
    if (const YAML::Node node = map["smReserved"]) {
      if (!values_.ParsePercent(node, path + ".smReserved", &keys->sm_reserved_percent))
        return false;
      // Only what stands in one rule is compared here.
      if (keys->sm_percent && keys->sm_reserved_percent->value > keys->sm_percent->value) {
        return mistake_.Fail(node, path + ".smReserved",
                             "more than smPercent, " + std::to_string(keys->sm_percent->value) +
                                 "%: nobody reserves what it may not use");
      }
    }
    if (const YAML::Node node = map["memoryWait"]) {
      if (!values_.ParseMemoryWait(node, path + ".memoryWait", &keys->memory_wait_s)) return false;
    }
    if (const YAML::Node node = map["maxKernelTime"]) {
      if (!values_.ParseKernelTime(node, path + ".maxKernelTime", &keys->max_kernel_time))
        return false;
    }
    if (const YAML::Node node = map["trace"]) {
      if (!values_.ParseTrace(node, path + ".trace", &keys->trace)) return false;
    }
    if (const YAML::Node node = map["deny"]) {
      if (!values_.ParseTruth(node, path + ".deny", &keys->deny)) return false;
    }
    const YAML::Node gpus = map["gpus"];
    return !gpus || values_.ParseGpus(gpus, path + ".gpus", &keys->gpus);
  }

  // Tenants choose their pods' names, so a pod's rule may not give a higher priority than its
  // namespace's.
  bool CheckPriorities() {
    for (const PolicyRule& space : policy_.namespaces) {
      for (const PodRule& pod : space.pods) {
        // The lowest cannot be above anything.
        if (!pod.priority || pod.priority->value == arbiter::kAllPriorities.back()) continue;
        const arbiter::Priority highest =
            SettingsOfNamespace(policy_, space.pattern).priority.value;
        if (arbiter::Index(pod.priority->value) >= arbiter::Index(highest)) continue;
        const std::string_view own = kPriorityNames[arbiter::Index(pod.priority->value)];
        std::string message(own);
        message += " is above ";
        message += kPriorityNames[arbiter::Index(highest)];
        message += ", the namespace's, and tenants choose their pods' names: write priority: ";
        message += own;
        message += " for the namespace, and a lower one for its other pods";
        return mistake_.Fail(pod.priority->place, pod.path + ".priority", message);
      }
    }
    return true;
  }

  // For the same reason.
  bool CheckTraces() {
    for (const PolicyRule& space : policy_.namespaces) {
      for (const PodRule& pod : space.pods) {
        if (!pod.trace || pod.trace->value == TraceRule::kNone) continue;
        if (SettingsOfNamespace(policy_, space.pattern).trace.value == TraceRule::kOwn) continue;
        return mistake_.Fail(
            pod.trace->place, pod.path + ".trace",
            "own is more than none, the namespace's, and tenants choose their pods' names: "
            "write trace: own for the namespace, and trace: none for its other pods");
      }
    }
    return true;
  }

  Policy policy_;
  const FirstMistake mistake_;
  const PolicyValues values_;
};

}  // namespace

std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                  std::string* error, EmptyText empty) {
  return Parser(file, error).Parse(text, empty);
}

}  // namespace gpuloom
