// SPDX-License-Identifier: Apache-2.0
// One recursive descent over yaml-cpp's nodes. It ends at the first mistake: one message with its
// place is easier to act on than all that follows from it.
#include "agent/policy/policy_parser.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <vector>

#include "agent/node/size.h"
#include "agent/policy/nearest_word.h"
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
constexpr std::array<std::string_view, 2> kKernelTimeKeys = {"warn", "end"};
constexpr std::string_view kNever = "never";
// Values beyond these bounds are mistakes. docs/policy.md names them.
constexpr uint32_t kMaxWeight = 1000;
constexpr uint32_t kMaxTenants = 1000;
constexpr uint32_t kMaxTimeS = 3600;
constexpr uint32_t kLeastRescueMs = 10;
constexpr uint32_t kMaxGpuIndex = 1023;
constexpr size_t kMaxGpus = 64;
constexpr size_t kMaxGpuLetters = 128;

// Lower-case letters, digits and -, as names of namespaces and containers are; of pods points, too. A glob's * and ?
// stand for some.
bool IsName(std::string_view text, size_t most_letters, std::string_view further_letters) {
  return !text.empty() && text.size() <= most_letters &&
         std::all_of(text.begin(), text.end(), [&](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' ||
                  further_letters.find(c) != further_letters.npos;
         });
}

// 63 and 253 letters are Kubernetes' limits for labels and for pods' names.
bool IsLabel(std::string_view text) { return IsName(text, 63, ""); }
bool IsLabelOrGlob(std::string_view text) { return IsName(text, 63, "*?"); }
bool IsPodOrGlob(std::string_view text) { return IsName(text, 253, ".*?"); }

// The path of a key in messages; the path of the file's top is empty.
std::string Below(const std::string& path, const std::string& key) {
  std::string below = path;
  if (!path.empty()) below += ".";
  below += key;
  return below;
}

// One parse. Each step says whether all was right; the first mistake is kept as the parse's.
class Parser {
 public:
  Parser(const std::string& file, std::string* error) : error_(error) { policy_.file = file; }

  std::optional<Policy> Parse(const std::string& text, EmptyText empty) {
    YamlMistake mistake;
    const std::optional<YAML::Node> root = LoadDocument(text, &mistake);
    if (!root) {
      Fail(mistake.place, "", mistake.message);
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
  // Always false, so that a step can return it.
  bool Fail(const SourcePosition& place, const std::string& key, const std::string& message) {
    *error_ = policy_.file + ":" + std::to_string(place.line) + ":" + std::to_string(place.column) +
              ": " + key + (key.empty() ? "" : ": ") + message;
    return false;
  }
  bool Fail(const YAML::Node& node, const std::string& key, const std::string& message) {
    return Fail(PositionOf(node), key, message);
  }

  // Only a null that is written has a place.
  void FailAsEmpty(const YAML::Node& root) {
    const bool has_place = root.IsDefined() && !root.Mark().is_null();
    Fail(has_place ? PositionOf(root) : SourcePosition{1, 1}, "",
         "is empty; write {} for a policy without rules");
  }

  // If `known` is empty, all keys are names and allowed. yaml-cpp itself accepts a key that is
  // written twice.
  bool CheckKeys(const YAML::Node& map, const std::string& path, Words known) {
    std::map<std::string, int> seen;
    for (const auto& entry : map) {
      if (!entry.first.IsScalar()) return Fail(entry.first, path, "a key must be a word");
      const std::string key = entry.first.Scalar();
      const std::string full = Below(path, key);
      const int line = PositionOf(entry.first).line;
      if (const auto [first, is_new] = seen.emplace(key, line); !is_new) {
        return Fail(entry.first, full,
                    "written twice, first in line " + std::to_string(first->second));
      }
      if (known.empty() || std::find(known.begin(), known.end(), key) != known.end()) continue;
      const std::string nearest(NearestWord(key, known));
      return Fail(entry.first, full,
                  nearest.empty() ? "unknown key; known here: " + ListWords(known)
                                  : "unknown key; did you mean " + nearest + "?");
    }
    return true;
  }

  bool ParseRoot(const YAML::Node& root) {
    if (!root.IsMap()) {
      return Fail(root, "", "a policy is a map with the keys defaults, namespaces, overcommit");
    }
    if (!CheckKeys(root, "", kTopKeys)) return false;
    if (const YAML::Node node = root["overcommit"]) {
      const std::optional<bool> value = TruthValue(node);
      if (!value) return Fail(node, "overcommit", "write true or false, without quotes");
      policy_.overcommit = *value;
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
      return Fail(map, "namespaces", "must be a map from a namespace or glob to its settings");
    }
    if (!CheckKeys(map, "namespaces", {})) return false;
    for (const auto& entry : map) {
      PolicyRule rule;
      rule.pattern = entry.first.Scalar();
      rule.path = "namespaces." + rule.pattern;
      if (!IsLabelOrGlob(rule.pattern)) {
        return Fail(entry.first, rule.path,
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
      if (!ParseMemory(node, rule->path + ".memory", &rule->memory)) return false;
    }
    if (const YAML::Node node = map["trustDomain"]) {
      if (!ParseTrustDomain(node, rule->path + ".trustDomain", &rule->trust_domain)) return false;
    }
    if (const YAML::Node node = map["maxTenants"]) {
      const std::optional<uint32_t> value = WholeNumber(node, 1, kMaxTenants);
      if (!value) {
        return Fail(
            node, rule->path + ".maxTenants",
            "write a whole number from 1 to 1000, without quotes; none at all is deny: true");
      }
      rule->max_tenants = {*value, PositionOf(node)};
    }
    if (const YAML::Node node = map["rescueAfter"]) {
      const std::optional<uint32_t> value = ParseRescueAfter(node, rule->path + ".rescueAfter");
      if (!value) return false;
      rule->rescue_after_ms = {*value, PositionOf(node)};
    }
    const YAML::Node pods = map["pods"];
    return !pods || pods.IsNull() || ParsePods(pods, rule);
  }

  // A key is POD or POD/CONTAINER. No name or glob of a pod has a slash.
  bool ParsePods(const YAML::Node& map, PolicyRule* space) {
    const std::string path = space->path + ".pods";
    if (!map.IsMap()) {
      return Fail(map, path, "must be a map from a pod's name or glob to its settings");
    }
    if (!CheckKeys(map, path, {})) return false;
    for (const auto& entry : map) {
      const std::string name = entry.first.Scalar();
      const size_t slash = name.find('/');
      PodRule rule;
      rule.path = Below(path, name);
      rule.pod = name.substr(0, slash);
      if (slash != name.npos) rule.container = name.substr(slash + 1);
      if (!IsPodOrGlob(rule.pod) || !IsLabelOrGlob(rule.container.value_or("*"))) {
        return Fail(entry.first, rule.path,
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
    if (!map.IsMap()) return Fail(map, path, "must be a map with the keys " + ListWords(known));
    if (!CheckKeys(map, path, known)) return false;
    if (const YAML::Node node = map["weight"]) {
      const std::optional<uint32_t> value = WholeNumber(node, 1, kMaxWeight);
      if (!value) {
        return Fail(node, path + ".weight", "write a whole number from 1 to 1000, without quotes");
      }
      keys->weight = {*value, PositionOf(node)};
    }
    if (const YAML::Node node = map["priority"]) {
      if (!ParsePriority(node, path + ".priority", &keys->priority)) return false;
    }
    if (const YAML::Node node = map["timeShareMax"]) {
      if (!ParsePercent(node, path + ".timeShareMax", &keys->time_share_max_percent)) return false;
    }
    if (const YAML::Node node = map["smPercent"]) {
      if (!ParsePercent(node, path + ".smPercent", &keys->sm_percent)) return false;
    }
    if (const YAML::Node node = map["smReserved"]) {
      if (!ParsePercent(node, path + ".smReserved", &keys->sm_reserved_percent)) return false;
      // Only what stands in one rule is compared here.
      if (keys->sm_percent && keys->sm_reserved_percent->value > keys->sm_percent->value) {
        return Fail(node, path + ".smReserved",
                    "more than smPercent, " + std::to_string(keys->sm_percent->value) +
                        "%: nobody reserves what it may not use");
      }
    }
    if (const YAML::Node node = map["memoryWait"]) {
      const std::optional<uint32_t> seconds = ParseTime(node, path + ".memoryWait", 0, "");
      if (!seconds) return false;
      keys->memory_wait_s = {*seconds, PositionOf(node)};
    }
    if (const YAML::Node node = map["maxKernelTime"]) {
      if (!ParseKernelTime(node, path + ".maxKernelTime", &keys->max_kernel_time)) return false;
    }
    if (const YAML::Node node = map["trace"]) {
      if (!ParseTrace(node, path + ".trace", &keys->trace)) return false;
    }
    if (const YAML::Node node = map["deny"]) {
      const std::optional<bool> value = TruthValue(node);
      if (!value) return Fail(node, path + ".deny", "write true or false, without quotes");
      keys->deny = {*value, PositionOf(node)};
    }
    const YAML::Node gpus = map["gpus"];
    return !gpus || ParseGpus(gpus, path + ".gpus", &keys->gpus);
  }

  // The unit must be binary, and there must be one. The size is kept as it is written; Decide
  // rounds it down.
  bool ParseMemory(const YAML::Node& node, const std::string& key,
                   std::optional<Setting<MemoryRule>>* memory) {
    if (!node.IsScalar()) return Fail(node, key, "write a size like 8GiB, or auto");
    MemoryRule rule;
    if (node.Scalar() != "auto") {
      std::string error;
      const std::optional<uint64_t> size = ParseSize(node.Scalar(), &error);
      if (!size) return Fail(node, key, error + ", or auto");
      // Bytes by themselves are a number in YAML, which some tools write anew as 4.29e+09.
      if (node.Scalar().find('i') == std::string::npos) {
        return Fail(node, key,
                    "size '" + node.Scalar() + "' has no unit: write KiB, MiB, GiB or TiB");
      }
      if (*size < kQuotaGranuleBytes) {
        return Fail(node, key, "less than 2MiB, the smallest piece of GPU memory");
      }
      rule = {false, *size};
    }
    *memory = {rule, PositionOf(node)};
    return true;
  }

  // The names of the kinds cannot be names of domains. `namespace` is the default and stays.
  bool ParseTrustDomain(const YAML::Node& node, const std::string& key,
                        std::optional<Setting<TrustDomainRule>>* trust_domain) {
    if (!node.IsScalar() || !IsLabel(node.Scalar())) {
      return Fail(node, key,
                  "write pod, namespace, node, or a name of lower-case letters, digits and -");
    }
    if (IsNoText(node)) {
      return Fail(node, key,
                  "write it in quotes, \"" + node.Scalar() +
                      "\": without them YAML has it for a number, a date or a truth value");
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
    *trust_domain = {domain, PositionOf(node)};
    return true;
  }

  bool ParsePriority(const YAML::Node& node, const std::string& key,
                     std::optional<Setting<arbiter::Priority>>* priority) {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    // At most one name matches.
    for (const arbiter::Priority each : arbiter::kAllPriorities) {
      if (text == kPriorityNames[arbiter::Index(each)]) *priority = {each, PositionOf(node)};
    }
    if (priority->has_value()) return true;
    const std::string nearest(NearestWord(text, kPriorityNames));
    return Fail(node, key,
                nearest.empty() ? "write high, normal or low" : "did you mean " + nearest + "?");
  }

  bool ParseTrace(const YAML::Node& node, const std::string& key,
                  std::optional<Setting<TraceRule>>* trace) {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    for (const TraceRule each : {TraceRule::kNone, TraceRule::kOwn}) {
      if (text == kTraceNames[static_cast<size_t>(each)]) *trace = {each, PositionOf(node)};
    }
    if (trace->has_value()) return true;
    const std::string nearest(NearestWord(text, kTraceNames));
    return Fail(node, key, nearest.empty() ? "write none or own" : "did you mean " + nearest + "?");
  }

  // The sign is asked for because 25 could be a weight, and 0.25 a share.
  bool ParsePercent(const YAML::Node& node, const std::string& key,
                    std::optional<Setting<uint32_t>>* percent) {
    if (WholeNumber(node, 1, 100)) {
      return Fail(node, key, "'" + node.Scalar() + "' has no unit: write " + node.Scalar() + "%");
    }
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    const std::optional<uint32_t> value =
        // Whole numbers only, as everywhere in a policy.
        text.ends_with('%') ? WholeNumber(text.substr(0, text.size() - 1), 1, 100) : std::nullopt;
    if (!value) return Fail(node, key, "write a share from 1% to 100%, in whole numbers");
    *percent = {*value, PositionOf(node)};
    return true;
  }

  // In seconds. `or_what` ends the message: what else may be written.
  std::optional<uint32_t> ParseTime(const YAML::Node& node, const std::string& key,
                                    uint32_t least_s, const std::string& or_what) {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    if (WholeNumber(text, 0, UINT32_MAX)) {
      Fail(node, key, "'" + text + "' has no unit: write " + text + "s");
      return std::nullopt;
    }
    for (const auto& [unit, unit_s] :
         {std::pair('s', 1u), std::pair('m', 60u), std::pair('h', 3600u)}) {
      if (!text.ends_with(unit)) continue;
      const std::optional<uint32_t> value = WholeNumber(
          std::string_view(text).substr(0, text.size() - 1), least_s, kMaxTimeS / unit_s);
      if (value) return *value * unit_s;
    }
    Fail(node, key,
         "write a time like " + std::to_string(least_s) +
             "s, 30s or 5m, in whole numbers, at most 1h" + or_what);
    return std::nullopt;
  }

  // In milliseconds.
  std::optional<uint32_t> ParseRescueAfter(const YAML::Node& node, const std::string& key) {
    const std::string text = node.IsScalar() ? node.Scalar() : "";
    if (text == kNever) return kNeverRescued;
    if (WholeNumber(text, 0, UINT32_MAX)) {
      Fail(node, key, "'" + text + "' has no unit: write " + text + "ms");
      return std::nullopt;
    }
    using Unit = std::pair<std::string_view, uint32_t>;
    for (const auto& [unit, unit_ms] :
         {Unit("ms", 1), Unit("s", 1000), Unit("m", 60'000), Unit("h", 3'600'000)}) {
      if (!text.ends_with(unit)) continue;
      const std::optional<uint32_t> value =
          WholeNumber(std::string_view(text).substr(0, text.size() - unit.size()), 1,
                      kMaxTimeS * 1000 / unit_ms);
      if (value && *value * unit_ms >= kLeastRescueMs) return *value * unit_ms;
    }
    Fail(node, key,
         "write a time like 100ms, 5s or 1m, in whole numbers, from 10ms to 1h, or never");
    return std::nullopt;
  }

  // Either limit may be left out, but not both: an empty map is a mistake rather than "no limit".
  bool ParseKernelTime(const YAML::Node& map, const std::string& key,
                       std::optional<Setting<KernelTimeRule>>* kernel_time) {
    if (!map.IsMap() || map.size() == 0) {
      return Fail(map, key,
                  "write what happens after which time, like {warn: 10s}, {end: 1m} or "
                  "{warn: 10s, end: 1m}");
    }
    if (!CheckKeys(map, key, kKernelTimeKeys)) return false;
    KernelTimeRule rule;
    for (const auto& [name, seconds] :
         {std::pair("warn", &rule.warn_s), std::pair("end", &rule.end_s)}) {
      const YAML::Node node = map[name];
      // 0 in the rule: for ever.
      if (!node || (node.IsScalar() && node.Scalar() == kNever)) continue;
      const std::optional<uint32_t> value = ParseTime(node, Below(key, name), 1, ", or never");
      if (!value) return false;
      *seconds = *value;
    }
    *kernel_time = {rule, PositionOf(map)};
    return true;
  }

  // An empty list would be "no GPU", which is deny's to say.
  bool ParseGpus(const YAML::Node& list, const std::string& key,
                 std::optional<Setting<std::vector<GpuPattern>>>* gpus) {
    constexpr char kKinds[] =
        "write a list of GPUs: their numbers without quotes, UUIDs (GPU-…), products "
        "(\"NVIDIA H200\"), or globs of these two";
    if (!list.IsSequence() || list.size() == 0 || list.size() > kMaxGpus) {
      return Fail(list, key, kKinds);
    }
    std::vector<GpuPattern> patterns;
    for (const YAML::Node& node : list) {
      // Without quotes; in quotes a number is text, and refused below.
      if (const std::optional<uint32_t> index = WholeNumber(node, 0, kMaxGpuIndex)) {
        patterns.push_back({static_cast<int>(*index), ""});
        continue;
      }
      const std::string text = node.IsScalar() ? node.Scalar() : "";
      const bool is_printable =
          std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
      // Without one it is a number that was written in another way, not a UUID or product.
      const bool has_letter = std::any_of(text.begin(), text.end(), [](char c) {
        return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '*';
      });
      if (!is_printable || !has_letter || text.size() > kMaxGpuLetters || IsNoText(node)) {
        return Fail(node, key, kKinds);
      }
      patterns.push_back({std::nullopt, text});
    }
    *gpus = {std::move(patterns), PositionOf(list)};
    return true;
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
        return Fail(pod.priority->place, pod.path + ".priority", message);
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
        return Fail(pod.trace->place, pod.path + ".trace",
                    "own is more than none, the namespace's, and tenants choose their pods' names: "
                    "write trace: own for the namespace, and trace: none for its other pods");
      }
    }
    return true;
  }

  Policy policy_;
  std::string* const error_;
};

}  // namespace

std::optional<Policy> ParsePolicy(const std::string& file, const std::string& text,
                                  std::string* error, EmptyText empty) {
  return Parser(file, error).Parse(text, empty);
}

}  // namespace gpuloom
