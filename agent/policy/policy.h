// SPDX-License-Identifier: Apache-2.0
// What the operator grants: memory per slot and the trust domain, by namespace. Plain values and
// pure functions, safe from any thread; reading the file is policy_parser.h, watching it
// policy_watcher.h. The rules are explained in docs/policy.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace gpuloom {

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
  int line = 0;  // where it is written, for messages
  bool operator==(const MemoryRule& other) const {
    return is_auto == other.is_auto && slot_bytes == other.slot_bytes;
  }
};

// One entry of `namespaces`, or `defaults` (pattern empty). What is not set is looked up in the
// next less specific rule.
struct PolicyRule {
  std::string pattern;  // a namespace, or a glob with * and ?
  std::optional<MemoryRule> memory;
  std::optional<TrustDomainRule> trust_domain;
};

struct Policy {
  std::string file;  // for messages
  PolicyRule defaults;
  std::vector<PolicyRule> namespaces;
  bool overcommit = false;
};

// What one GPU has to give.
struct Capacity {
  std::string gpu;  // for messages
  uint64_t total_bytes = 0;
  uint64_t reserve_bytes = 0;  // for the executors' own contexts
  int slots = 1;
};

struct Grant {
  uint64_t slot_bytes = 0;
  // Equal strings share an executor. The prefix keeps the kinds apart: a domain named by the
  // operator can never be the same as a namespace's own.
  std::string trust_domain;
  bool operator==(const Grant&) const = default;
};

// * matches any run of characters, ? one.
bool GlobMatches(std::string_view pattern, std::string_view text);

// What is kept for the executors' own contexts when the operator does not say: 600 MiB for as many
// executors as there are slots (a context was measured at 554 MiB), but at most an eighth of the
// GPU, where namespaces rarely outnumber the few tenants a small GPU can hold.
uint64_t AutoReserveBytes(uint64_t total_bytes, int slots);

// (total - reserve) / slots, rounded down to the granule of quota.
uint64_t AutoSlotBytes(const Capacity& capacity);

// What a pod of this namespace gets on this GPU: the exact name wins over globs, among globs the
// longer literal prefix, then more literal characters, then the earlier line; then `defaults`; then
// auto memory and one domain per namespace.
Grant Decide(const Policy& policy, const Capacity& capacity, std::string_view pod_namespace,
             std::string_view pod);

// FailedPrecondition, with file, line and key, when some rule's memory times the slots of this GPU,
// and the reserve, is more than the GPU has, and `overcommit` is not set.
absl::Status CheckPromise(const Policy& policy, const Capacity& capacity);

}  // namespace gpuloom
