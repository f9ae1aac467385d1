// SPDX-License-Identifier: Apache-2.0
// Which of a policy's rules apply to a pod: the most specific one that sets a key gives its value. Pure functions, safe
// from any thread.
//
// A pod's name is chosen by who makes it, so what `pods` says never gives more than the namespace has: of both priorities the
// lower one holds, of both maxKernelTimes the shorter, and of deny, gpus and timeShareMax both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/arbiter/priority.h"
#include "agent/policy/policy.h"

namespace gpuloom {

inline constexpr uint32_t kDefaultWeight = 100;

// A key's value and which rule's it is.
template <typename T>
struct Chosen {
  T value{};
  std::string key;  // "namespaces.team-a.weight"; empty: built in
  Place place;
};

struct PodSettings {
  Chosen<uint32_t> weight{kDefaultWeight, "", {}};
  Chosen<arbiter::Priority> priority{arbiter::Priority::kNormal, "", {}};
  Chosen<uint32_t> time_share_max_percent{100, "", {}};
  Chosen<uint32_t> sm_percent{100, "", {}};
  Chosen<uint32_t> sm_reserved_percent;
  Chosen<uint32_t> memory_wait_s;
  Chosen<KernelTimeRule> max_kernel_time;
  Chosen<bool> deny;
  Chosen<std::vector<GpuPattern>> gpus;  // empty: all
};

struct NamespaceSettings : PodSettings {
  Chosen<MemoryRule> memory;
  Chosen<TrustDomainRule> trust_domain;
  Chosen<uint32_t> max_tenants;  // 0: no bound
};

NamespaceSettings SettingsOfNamespace(const Policy& policy, std::string_view pod_namespace);

// `container` is empty where it is not known; then only rules for all containers apply.
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

// Why this container may not use this GPU, with file, line and key. Empty: it may.
std::string Refusal(const Policy& policy, const Capacity& gpu, const Candidate& candidate);

}  // namespace gpuloom
