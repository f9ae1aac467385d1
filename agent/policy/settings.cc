// SPDX-License-Identifier: Apache-2.0
// Choosing among a policy's rules. All rules that match are put in order, the most specific first,
// and each key is taken from the first that sets it, so keys of one pod may come from several
// rules. Afterwards what pods' rules say is cut to what the namespace has.
#include "agent/policy/settings.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "agent/node/size.h"
#include "agent/policy/glob.h"

namespace gpuloom {
namespace {

// The rules for a namespace, the most specific first, `defaults` last. Globs that are equally
// specific keep the file's order.
std::vector<const PolicyRule*> RulesOf(const Policy& policy, std::string_view pod_namespace) {
  std::vector<const PolicyRule*> rules;
  for (const PolicyRule& rule : policy.namespaces) {
    if (GlobMatches(rule.pattern, pod_namespace)) rules.push_back(&rule);
  }
  std::stable_sort(rules.begin(), rules.end(), [](const PolicyRule* a, const PolicyRule* b) {
    return SpecificityOf(a->pattern) > SpecificityOf(b->pattern);
  });
  rules.push_back(&policy.defaults);
  return rules;
}

// A rule for some containers does not apply while the container is not known.
bool Applies(const PodRule& rule, std::string_view pod, std::string_view container) {
  return GlobMatches(rule.pod, pod) &&
         (!rule.container.has_value() ||
          (!container.empty() && GlobMatches(*rule.container, container)));
}

// All rules of a more specific namespace come before those of a less specific one.
std::vector<const PodRule*> PodRulesOf(const Policy& policy, std::string_view pod_namespace,
                                       std::string_view pod, std::string_view container) {
  // The pod's name counts first, then a rule for a container before one for all.
  const auto specificity = [](const PodRule& rule) {
    return std::tuple(SpecificityOf(rule.pod), rule.container.has_value(),
                      SpecificityOf(rule.container.value_or("")));
  };
  std::vector<const PodRule*> all;
  for (const PolicyRule* space : RulesOf(policy, pod_namespace)) {
    std::vector<const PodRule*> rules;
    for (const PodRule& rule : space->pods) {
      if (Applies(rule, pod, container)) rules.push_back(&rule);
    }
    std::stable_sort(rules.begin(), rules.end(), [&](const PodRule* a, const PodRule* b) {
      return specificity(*a) > specificity(*b);
    });
    all.insert(all.end(), rules.begin(), rules.end());
  }
  return all;
}

// The first rule that sets the key has it; otherwise *chosen stays as it is: built in.
template <typename Rule, typename Key, typename T>
void Choose(const std::vector<const Rule*>& rules, Key key, const char* name, Chosen<T>* chosen) {
  for (const Rule* rule : rules) {
    if (!(rule->*key).has_value()) continue;
    *chosen = {(rule->*key)->value, rule->path + "." + name, (rule->*key)->place};
    return;
  }
}

// The keys that namespaces and pods have in common.
template <typename Rule>
void ChoosePodKeys(const std::vector<const Rule*>& rules, PodSettings* settings) {
  Choose(rules, &PodKeys::weight, "weight", &settings->weight);
  Choose(rules, &PodKeys::priority, "priority", &settings->priority);
  Choose(rules, &PodKeys::time_share_max_percent, "timeShareMax",
         &settings->time_share_max_percent);
  Choose(rules, &PodKeys::sm_percent, "smPercent", &settings->sm_percent);
  Choose(rules, &PodKeys::sm_reserved_percent, "smReserved", &settings->sm_reserved_percent);
  Choose(rules, &PodKeys::memory_wait_s, "memoryWait", &settings->memory_wait_s);
  Choose(rules, &PodKeys::max_kernel_time, "maxKernelTime", &settings->max_kernel_time);
  Choose(rules, &PodKeys::trace, "trace", &settings->trace);
  Choose(rules, &PodKeys::deny, "deny", &settings->deny);
  Choose(rules, &PodKeys::gpus, "gpus", &settings->gpus);
}

// 0 is without end.
uint32_t Shorter(uint32_t one_s, uint32_t other_s) {
  return one_s == 0 || other_s == 0 ? std::max(one_s, other_s) : std::min(one_s, other_s);
}

// A pod's name must not give it more time than its namespace has.
void Bound(const Chosen<KernelTimeRule>& space, Chosen<KernelTimeRule>* pod) {
  const KernelTimeRule both{Shorter(pod->value.warn_s, space.value.warn_s),
                            Shorter(pod->value.end_s, space.value.end_s)};
  // If the namespace's value applies, messages name its rule.
  if (both == space.value) *pod = space;
  pod->value = both;
}

// See Grant::trust_domain. A pod's domain has its namespace in the name: two namespaces may have
// pods of one name.
std::string DomainName(const TrustDomainRule& rule, std::string_view pod_namespace,
                       std::string_view pod) {
  switch (rule.kind) {
    case TrustDomainRule::Kind::kPod:
      return "pod/" + std::string(pod_namespace) + "/" + std::string(pod);
    case TrustDomainRule::Kind::kNamespace:
      return "namespace/" + std::string(pod_namespace);
    case TrustDomainRule::Kind::kNode:
      return "node";
    case TrustDomainRule::Kind::kNamed:
      return "name/" + rule.name;
  }
  return {};
}

// No patterns: all GPUs.
bool IsAmong(const Capacity& gpu, const std::vector<GpuPattern>& patterns) {
  return patterns.empty() ||
         std::any_of(patterns.begin(), patterns.end(), [&](const GpuPattern& pattern) {
           return pattern.index.has_value() ? *pattern.index == gpu.index
                                            : GlobMatches(pattern.glob, gpu.gpu) ||
                                                  GlobMatches(pattern.glob, gpu.product);
         });
}

// `who` is how messages begin: a namespace, or a pod of it.
std::string RefusalOf(const Policy& policy, const Capacity& gpu, const PodSettings& settings,
                      const std::string& who) {
  if (settings.deny.value) {
    return Where(policy, settings.deny.place, settings.deny.key) + who + " may not use GPUs";
  }
  if (!IsAmong(gpu, settings.gpus.value)) {
    return Where(policy, settings.gpus.place, settings.gpus.key) + who + " may not use GPU " +
           gpu.gpu + " (number " + std::to_string(gpu.index) + ", " + gpu.product +
           "), which the kubelet has chosen; choose nodes by their labels";
  }
  return "";
}

// Divides instead of multiplying: memory times slots may not fit into 64 bits. auto is never too
// much.
bool IsTooMuch(const MemoryRule& memory, const Capacity& gpu) {
  const uint64_t room_bytes = gpu.total_bytes - std::min(gpu.total_bytes, gpu.reserve_bytes);
  return !memory.is_auto && memory.slot_bytes > room_bytes / static_cast<uint64_t>(gpu.slots);
}

std::string WhyImpossible(const Policy& policy, const Capacity& gpu,
                          const Chosen<MemoryRule>& memory) {
  if (policy.overcommit || !IsTooMuch(memory.value, gpu)) return "";
  return Where(policy, memory.place, memory.key) + std::to_string(gpu.slots) + " slots x " +
         FormatSize(memory.value.slot_bytes) + " is more than GPU " + gpu.gpu + " has (" +
         FormatSize(gpu.total_bytes) + ", of which " + FormatSize(gpu.reserve_bytes) +
         " are kept for the executors): write at most " + FormatSize(AutoSlotBytes(gpu)) +
         ", lower the number of slots, let gpus name those that it is for, or set overcommit: true";
}

}  // namespace

NamespaceSettings SettingsOfNamespace(const Policy& policy, std::string_view pod_namespace) {
  const std::vector<const PolicyRule*> rules = RulesOf(policy, pod_namespace);
  NamespaceSettings settings;
  ChoosePodKeys(rules, &settings);
  Choose(rules, &PolicyRule::memory, "memory", &settings.memory);
  Choose(rules, &PolicyRule::trust_domain, "trustDomain", &settings.trust_domain);
  Choose(rules, &PolicyRule::max_tenants, "maxTenants", &settings.max_tenants);
  Choose(rules, &PolicyRule::rescue_after_ms, "rescueAfter", &settings.rescue_after_ms);
  return settings;
}

PodSettings SettingsOfPod(const Policy& policy, std::string_view pod_namespace,
                          std::string_view pod, std::string_view container) {
  const NamespaceSettings space = SettingsOfNamespace(policy, pod_namespace);
  const Chosen<arbiter::Priority>& highest = space.priority;
  PodSettings settings;
  // The values that apply if no rule for pods sets any. Keys that apply to namespace and pod separately, one below the
  // other (weights, shares), are not taken over.
  settings.priority = highest;
  settings.memory_wait_s = space.memory_wait_s;
  settings.max_kernel_time = space.max_kernel_time;
  settings.trace = space.trace;
  ChoosePodKeys(PodRulesOf(policy, pod_namespace, pod, container), &settings);
  // The index of a higher priority is the smaller one.
  if (arbiter::Index(settings.priority.value) < arbiter::Index(highest.value)) {
    settings.priority = highest;
  }
  if (settings.memory_wait_s.value > space.memory_wait_s.value) {
    settings.memory_wait_s = space.memory_wait_s;
  }
  Bound(space.max_kernel_time, &settings.max_kernel_time);
  if (space.trace.value == TraceRule::kNone) settings.trace = space.trace;
  return settings;
}

Grant Decide(const Policy& policy, const Capacity& capacity, std::string_view pod_namespace,
             std::string_view pod) {
  const NamespaceSettings settings = SettingsOfNamespace(policy, pod_namespace);
  const MemoryRule& memory = settings.memory.value;
  Grant grant;
  // Rounded down, because the driver creates memory in granules.
  grant.slot_bytes = memory.is_auto ? AutoSlotBytes(capacity)
                                    : memory.slot_bytes / kQuotaGranuleBytes * kQuotaGranuleBytes;
  grant.trust_domain = DomainName(settings.trust_domain.value, pod_namespace, pod);
  return grant;
}

std::string WhyImpossibleFor(const Policy& policy, const Capacity& gpu,
                             std::string_view pod_namespace) {
  return WhyImpossible(policy, gpu, SettingsOfNamespace(policy, pod_namespace).memory);
}

std::vector<ImpossibleRule> ImpossibleRules(const Policy& policy, const Capacity& gpu) {
  // A GPU without any slots has its own reason (NothingLeft).
  if (policy.overcommit || AutoSlotBytes(gpu) == 0) return {};
  // First the namespaces to which the rules belong; then others that may use the GPU because a rule of their own allows
  // it. The empty name stands for namespaces that only have the defaults.
  std::set<std::string> open;
  std::vector<std::string_view> names;
  const auto add = [&](const PolicyRule& rule) {
    if (!rule.memory.has_value() || !IsTooMuch(rule.memory->value, gpu)) return;
    open.insert(rule.path + ".memory");
    names.push_back(rule.pattern);
  };
  add(policy.defaults);
  for (const PolicyRule& rule : policy.namespaces) add(rule);
  if (open.empty()) return {};
  names.push_back("");
  for (const PolicyRule& rule : policy.namespaces) names.push_back(rule.pattern);
  std::vector<ImpossibleRule> broken;
  for (const std::string_view name : names) {
    if (open.empty()) break;
    const NamespaceSettings settings = SettingsOfNamespace(policy, name);
    const std::string& key = settings.memory.key;
    // A namespace that may not use the GPU is promised nothing there. Each rule is reported once.
    if (settings.deny.value || !IsAmong(gpu, settings.gpus.value) || open.erase(key) == 0) continue;
    broken.push_back({key, WhyImpossible(policy, gpu, settings.memory)});
  }
  return broken;
}

// The namespace is judged before the pod: what it may not do, no pod's rule allows.
std::string Refusal(const Policy& policy, const Capacity& gpu, const Candidate& candidate) {
  const NamespaceSettings of_namespace = SettingsOfNamespace(policy, candidate.pod_namespace);
  const std::string name = "namespace " + std::string(candidate.pod_namespace);
  std::string refusal = RefusalOf(policy, gpu, of_namespace, name);
  if (!refusal.empty()) return refusal;
  const PodSettings of_pod =
      SettingsOfPod(policy, candidate.pod_namespace, candidate.pod, candidate.container);
  refusal = RefusalOf(policy, gpu, of_pod, "pod " + std::string(candidate.pod) + " of " + name);
  if (!refusal.empty()) return refusal;
  refusal = WhyImpossible(policy, gpu, of_namespace.memory);
  if (!refusal.empty()) return refusal;
  const Chosen<uint32_t>& most = of_namespace.max_tenants;
  if (most.value == 0 || candidate.tenants_of_namespace < most.value) return "";
  return Where(policy, most.place, most.key) + name + " has " +
         std::to_string(candidate.tenants_of_namespace) + " containers on GPU " + gpu.gpu +
         ", of at most " + std::to_string(most.value);
}

}  // namespace gpuloom
