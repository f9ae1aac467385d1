// SPDX-License-Identifier: Apache-2.0
// Which of a policy's rules apply to a pod: the most specific one that sets a key gives its value. Pure functions,
// safe from any thread. A pod's name is chosen by its creator, so a rule under `pods` never grants more than the
// namespace has. Of the pod's and the namespace's values the lower priority, the shorter maxKernelTime and
// memoryWait, and the lesser trace apply; both values of deny, gpus, timeShareMax, smPercent and smReserved apply.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/arbiter/priority.h"
#include "agent/policy/policy.h"

namespace gpuloom {

inline constexpr uint32_t kDefaultWeight = 100;

// A key's value, and the rule that it comes from.
template <typename T>
struct Chosen {
  T value{};
  std::string key;  // "namespaces.team-a.weight"; empty: built in
  SourcePosition place;
};

struct PodSettings {
  Chosen<uint32_t> weight{kDefaultWeight, "", {}};
  Chosen<arbiter::Priority> priority{arbiter::Priority::kNormal, "", {}};
  Chosen<uint32_t> time_share_max_percent{100, "", {}};
  Chosen<uint32_t> sm_percent{100, "", {}};
  Chosen<uint32_t> sm_reserved_percent;
  Chosen<uint32_t> memory_wait_s;
  Chosen<KernelTimeRule> max_kernel_time;
  Chosen<TraceRule> trace;
  Chosen<bool> deny;
  Chosen<std::vector<GpuPattern>> gpus;  // empty: all
};

struct NamespaceSettings : PodSettings {
  Chosen<MemoryRule> memory;
  Chosen<TrustDomainRule> trust_domain;
  Chosen<uint32_t> max_tenants;  // 0: no bound
  // Namespaces only: a pod's name must not shorten how long others wait behind it.
  Chosen<uint32_t> rescue_after_ms{kDefaultRescueAfterMs, "", {}};
};

NamespaceSettings SettingsOfNamespace(const Policy& policy, std::string_view pod_namespace);

// `container` is empty if it is not known; then only rules for all containers apply.
PodSettings SettingsOfPod(const Policy& policy, std::string_view pod_namespace,
                          std::string_view pod, std::string_view container);

struct Grant {
  uint64_t slot_bytes = 0;
  // Equal strings share an executor. The prefix keeps the kinds apart: a domain named by the
  // operator can never be the same as a namespace's own.
  std::string trust_domain;
  bool operator==(const Grant&) const = default;
};

// What a pod of this namespace gets on this GPU.
Grant Decide(const Policy& policy, const Capacity& capacity, std::string_view pod_namespace,
             std::string_view pod);

struct Candidate {
  std::string_view pod_namespace;
  std::string_view pod;
  std::string_view container;     // empty: an init container
  uint32_t tenants_of_namespace;  // that use this GPU without it
};

// Why the GPU cannot keep what the memory rule promises a namespace, with file, line, key and what to do: the rule's
// memory times the slots, plus the reserve, is more than the GPU has, and `overcommit` is not set. Empty: it can.
std::string WhyImpossibleFor(const Policy& policy, const Capacity& gpu,
                             std::string_view pod_namespace);

// A rule that is impossible on a GPU: the pods to which it applies are refused there, all others are served.
struct ImpossibleRule {
  std::string key;      // "namespaces.team-a.memory"
  std::string message;  // as WhyImpossibleFor
};

// Each rule once. Leaves out rules that apply only to pods which `deny` and `gpus` keep off the GPU, as far as the
// file's own names and globs show it: a name that matches two globs at once may be refused without being foreseen
// here.
std::vector<ImpossibleRule> ImpossibleRules(const Policy& policy, const Capacity& gpu);

// Why this container may not use this GPU, with file, line and key. Empty: it may.
std::string Refusal(const Policy& policy, const Capacity& gpu, const Candidate& candidate);

}  // namespace gpuloom
