// SPDX-License-Identifier: Apache-2.0
#include "agent/policy_command/spelling.h"

#include "agent/node/size.h"

namespace gpuloom {
namespace {

// How each key is spelled, whether a rule sets it or settings have it.
// For keys whose type says how; for the others their function is named.
std::string SpelledNumber(uint32_t number) { return std::to_string(number); }
constexpr auto kByType = [](const auto& value) { return Spelled(value); };

using Keys = std::map<std::string, std::string>;

// A key that the rule does not set is left out.
template <typename T, typename Spell>
void Add(const std::string& path, const char* name, const std::optional<Setting<T>>& setting,
         Spell spell, Keys* keys) {
  if (setting.has_value()) (*keys)[path + "." + name] = spell(setting->value);
}

// The keys are listed here by hand, and once more in KeysInEffect and in explain.cc: what is
// missing there does not show up as a change.
void AddPodKeys(const std::string& path, const PodKeys& rule, Keys* keys) {
  Add(path, "weight", rule.weight, SpelledNumber, keys);
  Add(path, "priority", rule.priority, kByType, keys);
  Add(path, "timeShareMax", rule.time_share_max_percent, SpelledPercent, keys);
  Add(path, "smPercent", rule.sm_percent, SpelledPercent, keys);
  Add(path, "smReserved", rule.sm_reserved_percent, SpelledPercent, keys);
  Add(path, "memoryWait", rule.memory_wait_s, SpelledSeconds, keys);
  Add(path, "maxKernelTime", rule.max_kernel_time, kByType, keys);
  Add(path, "trace", rule.trace, kByType, keys);
  Add(path, "deny", rule.deny, SpelledTruth, keys);
  Add(path, "gpus", rule.gpus, kByType, keys);
}

// A rule for a namespace or the defaults, and those for its pods.
void AddRule(const PolicyRule& rule, Keys* keys) {
  AddPodKeys(rule.path, rule, keys);
  Add(rule.path, "memory", rule.memory, kByType, keys);
  Add(rule.path, "trustDomain", rule.trust_domain, kByType, keys);
  Add(rule.path, "maxTenants", rule.max_tenants, SpelledBound, keys);
  Add(rule.path, "rescueAfter", rule.rescue_after_ms, SpelledRescue, keys);
  for (const PodRule& pod : rule.pods) AddPodKeys(pod.path, pod, keys);
}

// The same of a value that was chosen among rules.
template <typename T, typename Spell>
KeyInEffect InEffect(const char* key, const Chosen<T>& chosen, Spell spell, Applies applies) {
  return {key, spell(chosen.value), chosen.key, applies};
}

}  // namespace

std::string Spelled(const MemoryRule& rule) {
  return rule.is_auto ? "auto" : FormatSize(rule.slot_bytes);
}

std::string Spelled(const TrustDomainRule& rule) {
  switch (rule.kind) {
    case TrustDomainRule::Kind::kPod:
      return "pod";
    case TrustDomainRule::Kind::kNamespace:
      return "namespace";
    case TrustDomainRule::Kind::kNode:
      return "node";
    case TrustDomainRule::Kind::kNamed:
      return rule.name;
  }
  return {};
}

std::string Spelled(const KernelTimeRule& rule) {
  // Both limits are 0: for ever.
  if (rule == KernelTimeRule{}) return "no limit";
  std::string text;
  if (rule.warn_s != 0) text = "warn: " + SpelledSeconds(rule.warn_s);
  if (rule.end_s != 0) text += (text.empty() ? "end: " : ", end: ") + SpelledSeconds(rule.end_s);
  return text;
}

std::string Spelled(const std::vector<GpuPattern>& gpus) {
  std::string text;
  for (const GpuPattern& gpu : gpus) {
    text += (text.empty() ? "" : ", ") +
            (gpu.index.has_value() ? std::to_string(*gpu.index) : gpu.glob);
  }
  return text.empty() ? "all" : text;
}

std::string Spelled(arbiter::Priority priority) {
  return std::string(kPriorityNames[arbiter::Index(priority)]);
}

std::string Spelled(TraceRule trace) {
  return std::string(kTraceNames[static_cast<size_t>(trace)]);
}

std::string SpelledPercent(uint32_t percent) { return std::to_string(percent) + "%"; }
std::string SpelledSeconds(uint32_t seconds) { return std::to_string(seconds) + "s"; }
std::string SpelledTruth(bool truth) { return truth ? "true" : "false"; }
std::string SpelledBound(uint32_t most) { return most == 0 ? "no bound" : std::to_string(most); }
std::string SpelledRescue(uint32_t ms) {
  if (ms == kNeverRescued) return "never";
  return ms % 1000 == 0 ? SpelledSeconds(ms / 1000) : std::to_string(ms) + "ms";
}

std::map<std::string, std::string> KeysOf(const Policy& policy) {
  Keys keys;
  // False is what it is when it is not set.
  if (policy.overcommit) keys["overcommit"] = SpelledTruth(true);
  AddRule(policy.defaults, &keys);
  for (const PolicyRule& rule : policy.namespaces) AddRule(rule, &keys);
  return keys;
}

std::vector<KeyInEffect> KeysInEffect(const Policy& policy, std::string_view pod_namespace,
                                      std::string_view pod, std::string_view container) {
  const NamespaceSettings space = SettingsOfNamespace(policy, pod_namespace);
  const PodSettings own = SettingsOfPod(policy, pod_namespace, pod, container);
  using enum Applies;
  // At once: the agent sends these to the scheduler. At the next process: a trust domain is chosen
  // when a process connects. At the next start: these are judged when a container starts.
  return {
      InEffect("memory", space.memory, kByType, kAtOnce),
      InEffect("weight", space.weight, SpelledNumber, kAtOnce),
      InEffect("weight", own.weight, SpelledNumber, kAtOnce),
      InEffect("priority", own.priority, kByType, kAtOnce),
      InEffect("timeShareMax", space.time_share_max_percent, SpelledPercent, kAtOnce),
      InEffect("timeShareMax", own.time_share_max_percent, SpelledPercent, kAtOnce),
      InEffect("smPercent", space.sm_percent, SpelledPercent, kAtOnce),
      InEffect("smPercent", own.sm_percent, SpelledPercent, kAtOnce),
      InEffect("smReserved", space.sm_reserved_percent, SpelledPercent, kAtOnce),
      InEffect("smReserved", own.sm_reserved_percent, SpelledPercent, kAtOnce),
      InEffect("memoryWait", own.memory_wait_s, SpelledSeconds, kAtOnce),
      InEffect("maxKernelTime", own.max_kernel_time, kByType, kAtOnce),
      InEffect("trace", own.trace, kByType, kAtOnce),
      InEffect("rescueAfter", space.rescue_after_ms, SpelledRescue, kAtOnce),
      InEffect("trustDomain", space.trust_domain, kByType, kNextProcess),
      InEffect("deny", space.deny, SpelledTruth, kNextStart),
      InEffect("deny", own.deny, SpelledTruth, kNextStart),
      InEffect("gpus", space.gpus, kByType, kNextStart),
      InEffect("gpus", own.gpus, kByType, kNextStart),
      InEffect("maxTenants", space.max_tenants, SpelledBound, kNextStart),
  };
}

}  // namespace gpuloom
