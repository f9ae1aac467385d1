// SPDX-License-Identifier: Apache-2.0
// The values of a policy's keys as people write them in the file. Pure; safe from any thread.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "agent/policy/settings.h"

namespace gpuloom {

std::string Spelled(const MemoryRule& rule);
std::string Spelled(const TrustDomainRule& rule);
std::string Spelled(const KernelTimeRule& rule);
std::string Spelled(const std::vector<GpuPattern>& gpus);
std::string Spelled(arbiter::Priority priority);
std::string Spelled(TraceRule trace);
std::string SpelledPercent(uint32_t percent);
std::string SpelledSeconds(uint32_t seconds);
std::string SpelledTruth(bool truth);
std::string SpelledBound(uint32_t most);  // of maxTenants
std::string SpelledRescue(uint32_t ms);   // of rescueAfter

// All keys that the file sets, by their paths: "namespaces.team-a.weight", "300".
std::map<std::string, std::string> KeysOf(const Policy& policy);

// When a change of a key takes effect for a running container.
enum class Applies { kAtOnce, kNextProcess, kNextStart };
inline constexpr const char* kAppliesNames[] = {"at once", "at its next process",
                                                "at its next container start"};

// The value of one key for a container, and the rule that it comes from.
struct KeyInEffect {
  std::string key;
  std::string value;
  std::string rule;  // its path; empty: built in
  Applies applies = Applies::kAtOnce;
};

// All keys, always in the same order. A key that applies to a namespace and to its pods separately is listed twice, the
// namespace's first; one that a pod takes from its namespace, unless its own rule gives less, once.
std::vector<KeyInEffect> KeysInEffect(const Policy& policy, std::string_view pod_namespace,
                                      std::string_view pod, std::string_view container);

}  // namespace gpuloom
