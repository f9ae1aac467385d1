// SPDX-License-Identifier: Apache-2.0
// What the operator grants, by namespace and by pod, as the policy file says it. Plain values and pure functions,
// safe from any thread. policy_parser.h reads the file, settings.h says which of its rules apply to a pod, and
// in_force/ keeps the policy in force. docs/policy.md explains the rules.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/arbiter/priority.h"

namespace gpuloom {

// Where something is written, for messages.
struct SourcePosition {
  int line = 0;
  int column = 0;
};

template <typename T>
struct Setting {
  T value{};
  SourcePosition place;
};

inline constexpr std::array<std::string_view, arbiter::kPriorities> kPriorityNames = {
    "high", "normal", "low"};

struct TrustDomainRule {
  enum class Kind { kPod, kNamespace, kNode, kNamed };
  Kind kind = Kind::kNamespace;
  std::string name;  // of kNamed
  bool operator==(const TrustDomainRule&) const = default;
};

// Memory of one slot: a number of bytes, or "auto" (the GPU's memory shared out evenly).
struct MemoryRule {
  bool is_auto = true;
  uint64_t slot_bytes = 0;
  bool operator==(const MemoryRule&) const = default;
};

// One entry of `gpus`: a GPU's number, or else a glob of its UUID or of its product's name.
struct GpuPattern {
  std::optional<int> index;
  std::string glob;
  bool operator==(const GpuPattern&) const = default;
};

// How long a kernel may run until it is reported, and until its trust domain's executor is ended. 0: no limit.
struct KernelTimeRule {
  uint32_t warn_s = 0;  // to 3600, as end_s
  uint32_t end_s = 0;
  bool operator==(const KernelTimeRule&) const = default;
};

// How long a lower class's work waits behind a higher one's. 100 ms is the default; kNeverRescued: without limit.
inline constexpr uint32_t kDefaultRescueAfterMs = 100;
inline constexpr uint32_t kNeverRescued = UINT32_MAX;

// What a container may see of a trace.
enum class TraceRule { kNone, kOwn };
inline constexpr std::array<std::string_view, 2> kTraceNames = {"none", "own"};

// What rules for pods may set, and rules for namespaces, too. A namespace's weight counts among the namespaces, and its
// time_share_max_percent limits all its allocations together; a pod's weight counts among the namespace's allocations,
// and its time_share_max_percent limits each of the pod's allocations.
struct PodKeys {
  std::optional<Setting<uint32_t>> weight;  // 1–1000
  std::optional<Setting<arbiter::Priority>> priority;
  std::optional<Setting<uint32_t>> time_share_max_percent;  // 1–100
  std::optional<Setting<uint32_t>> sm_percent;  // 1–100, of the GPU's multiprocessors; the same
  std::optional<Setting<uint32_t>>
      sm_reserved_percent;                         // 1–100; never more than sm_percent beside it
  std::optional<Setting<uint32_t>> memory_wait_s;  // 0–3600
  std::optional<Setting<KernelTimeRule>> max_kernel_time;
  std::optional<Setting<TraceRule>> trace;
  std::optional<Setting<bool>> deny;
  std::optional<Setting<std::vector<GpuPattern>>> gpus;
};

// One entry of `pods`.
struct PodRule : PodKeys {
  std::string path;                      // "namespaces.team-a.pods.server-*"
  std::string pod;                       // a name or glob
  std::optional<std::string> container;  // the same
};

// One entry of `namespaces`, or `defaults` (pattern empty). What is not set is looked up in the
// next less specific rule.
struct PolicyRule : PodKeys {
  std::string path;     // "defaults", "namespaces.team-a"
  std::string pattern;  // a namespace, or a glob with * and ?
  std::optional<Setting<MemoryRule>> memory;
  std::optional<Setting<TrustDomainRule>> trust_domain;
  std::optional<Setting<uint32_t>> max_tenants;      // from 1
  std::optional<Setting<uint32_t>> rescue_after_ms;  // 10–3'600'000, or kNeverRescued
  std::vector<PodRule> pods;
};

struct Policy {
  std::string file;  // its path, for messages
  PolicyRule defaults;
  std::vector<PolicyRule> namespaces;
  bool overcommit = false;
};

// What one GPU has to give.
struct Capacity {
  std::string gpu;  // its UUID, or another name for messages
  uint64_t total_bytes = 0;
  uint64_t reserve_bytes = 0;  // for the executors' own contexts
  int slots = 1;
  int index = 0;
  std::string product = {};
};

// What is reserved for the executors' own contexts if the operator does not say: 600 MiB for as many
// executors as there are slots (a context takes about 580 MiB), but at most an eighth of the
// GPU, where namespaces rarely outnumber the few tenants a small GPU can hold.
uint64_t AutoReserveBytes(uint64_t total_bytes, int slots);

// (total - reserve) / slots, rounded down to the granule of quota.
uint64_t AutoSlotBytes(const Capacity& capacity);

// "policy.yaml:3:5: namespaces.team-a.memory: ", the beginning of every message about a key.
std::string Where(const Policy& policy, const SourcePosition& place, const std::string& key);

}  // namespace gpuloom
