// SPDX-License-Identifier: Apache-2.0
#include "agent/policy/policy.h"

#include <algorithm>
#include <tuple>

#include "agent/cat.h"
#include "agent/node/size.h"

namespace gpuloom {
namespace {

bool IsGlob(std::string_view pattern) { return pattern.find_first_of("*?") != pattern.npos; }

// Larger is more specific.
std::tuple<bool, size_t, size_t> Specificity(std::string_view pattern) {
  const size_t literals =
      std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; });
  return {!IsGlob(pattern), std::min(pattern.find_first_of("*?"), pattern.size()), literals};
}

std::string DomainName(const TrustDomainRule& rule, std::string_view pod_namespace,
                       std::string_view pod) {
  switch (rule.kind) {
    case TrustDomainRule::Kind::kPod:
      return Cat("pod/", pod_namespace, "/", pod);
    case TrustDomainRule::Kind::kNamespace:
      return Cat("namespace/", pod_namespace);
    case TrustDomainRule::Kind::kNode:
      return "node";
    case TrustDomainRule::Kind::kNamed:
      return Cat("name/", rule.name);
  }
  return {};
}

absl::Status CheckRule(const Policy& policy, const PolicyRule& rule, const Capacity& capacity) {
  if (!rule.memory.has_value() || rule.memory->is_auto) return absl::OkStatus();
  const uint64_t slots = static_cast<uint64_t>(capacity.slots);
  const uint64_t room_bytes =
      capacity.total_bytes - std::min(capacity.total_bytes, capacity.reserve_bytes);
  if (rule.memory->slot_bytes <= room_bytes / slots) return absl::OkStatus();
  const std::string key =
      rule.pattern.empty() ? "defaults.memory" : Cat("namespaces.", rule.pattern, ".memory");
  return absl::FailedPreconditionError(
      Cat(policy.file, ":", rule.memory->line, ": ", key, ": ", slots, " slots x ",
          FormatSize(rule.memory->slot_bytes), " is more than GPU ", capacity.gpu, " has (",
          FormatSize(capacity.total_bytes), ", of which ", FormatSize(capacity.reserve_bytes),
          " are kept for the executors): write at most ", FormatSize(AutoSlotBytes(capacity)),
          ", lower the number of slots, or set overcommit: true"));
}

}  // namespace

bool GlobMatches(std::string_view pattern, std::string_view text) {
  // The usual two-finger match: on a mismatch the last * swallows one character more.
  size_t p = 0, t = 0, star = pattern.npos, swallowed = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      swallowed = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != pattern.npos) {
      p = star + 1;
      t = ++swallowed;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

uint64_t AutoReserveBytes(uint64_t total_bytes, int slots) {
  constexpr uint64_t kContextBytes = uint64_t{600} << 20;
  return std::min(total_bytes / 8, static_cast<uint64_t>(slots) * kContextBytes);
}

uint64_t AutoSlotBytes(const Capacity& capacity) {
  if (capacity.reserve_bytes >= capacity.total_bytes || capacity.slots < 1) return 0;
  const uint64_t share_bytes =
      (capacity.total_bytes - capacity.reserve_bytes) / static_cast<uint64_t>(capacity.slots);
  return share_bytes / kQuotaGranuleBytes * kQuotaGranuleBytes;
}

Grant Decide(const Policy& policy, const Capacity& capacity, std::string_view pod_namespace,
             std::string_view pod) {
  std::vector<const PolicyRule*> rules;
  for (const PolicyRule& rule : policy.namespaces) {
    if (GlobMatches(rule.pattern, pod_namespace)) rules.push_back(&rule);
  }
  std::stable_sort(rules.begin(), rules.end(), [](const PolicyRule* a, const PolicyRule* b) {
    return Specificity(a->pattern) > Specificity(b->pattern);
  });
  rules.push_back(&policy.defaults);

  MemoryRule memory;
  TrustDomainRule trust_domain;
  for (auto rule = rules.rbegin(); rule != rules.rend(); ++rule) {
    if ((*rule)->memory.has_value()) memory = *(*rule)->memory;
    if ((*rule)->trust_domain.has_value()) trust_domain = *(*rule)->trust_domain;
  }
  Grant grant;
  grant.slot_bytes = memory.is_auto ? AutoSlotBytes(capacity)
                                    : memory.slot_bytes / kQuotaGranuleBytes * kQuotaGranuleBytes;
  grant.trust_domain = DomainName(trust_domain, pod_namespace, pod);
  return grant;
}

absl::Status CheckPromise(const Policy& policy, const Capacity& capacity) {
  if (policy.overcommit) return absl::OkStatus();
  if (absl::Status status = CheckRule(policy, policy.defaults, capacity); !status.ok())
    return status;
  for (const PolicyRule& rule : policy.namespaces) {
    if (absl::Status status = CheckRule(policy, rule, capacity); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace gpuloom
