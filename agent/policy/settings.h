// SPDX-License-Identifier: Apache-2.0
// Which of a policy's rules apply to a pod: the most specific one that sets a key gives its value. Pure functions, safe
// from any thread.
//
// A pod's name is chosen by who makes it, so what `pods` says never gives more than the namespace has: of both priorities the
// lower one holds, of both maxKernelTimes and memoryWaits the shorter, of both traces the lesser, and of deny, gpus, timeShareMax,
// smPercent and smReserved both.
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
  Chosen<TraceRule> trace;
  Chosen<bool> deny;
  Chosen<std::vector<GpuPattern>> gpus;  // empty: all
};

struct NamespaceSettings : PodSettings {
  Chosen<MemoryRule> memory;
  Chosen<TrustDomainRule> trust_domain;
  Chosen<uint32_t> max_tenants;  // 0: no bound
  // Of the namespace alone: a pod's name must not shorten what others wait for it.
  Chosen<uint32_t> rescue_after_ms{kDefaultRescueAfterMs, "", {}};
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

// Why the GPU cannot keep what its memory rule promises a namespace, with file, line, key and what to do: the rule's memory
// times the slots, and the reserve, is more than the GPU has, and `overcommit` is not set. Empty: it can.
std::string BrokenPromiseTo(const Policy& policy, const Capacity& gpu,
                            std::string_view pod_namespace);

// A rule that is impossible on a GPU: pods that it is for are refused there, all others are served.
struct BrokenPromise {
  std::string key;      // "namespaces.team-a.memory"
  std::string message;  // as BrokenPromiseTo
};

// Each rule once. Not those that nobody has whom `deny` and `gpus` let on the GPU, as far as the file's own names and globs
// tell: a name that combines two globs may be refused without being foreseen here.
std::vector<BrokenPromise> BrokenPromises(const Policy& policy, const Capacity& gpu);

// Why this container may not use this GPU, with file, line and key. Empty: it may.
std::string Refusal(const Policy& policy, const Capacity& gpu, const Candidate& candidate);

}  // namespace gpuloom
