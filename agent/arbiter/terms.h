// SPDX-License-Identifier: Apache-2.0
// Translates the numbers of a policy, where 0 means "not set", into what the share tree takes.
// Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "agent/arbiter/policy_tree.h"

namespace gpuloom::arbiter {

constexpr uint32_t WeightOf(uint32_t said) { return said == 0 ? 100 : said; }
constexpr uint32_t CeilingOf(uint32_t said_permille) {
  return said_permille == 0 ? kNoCeilingPermille : said_permille;
}
// 1 high, 2 normal, 3 low.
constexpr Priority PriorityOf(uint32_t said) {
  if (said == 1) return Priority::kHigh;
  return said == 3 ? Priority::kLow : Priority::kNormal;
}

// `terms` has the fields of control::ShareTerms, which this folder does not know.
template <typename Terms>
NamespacePolicy OfNamespace(const Terms& terms) {
  return {WeightOf(terms.namespace_weight), CeilingOf(terms.namespace_time_permille)};
}

// 0: not set; UINT32_MAX: never.
constexpr std::optional<uint64_t> StarvationOf(uint32_t said_ms) {
  if (said_ms == 0) return std::nullopt;
  return said_ms == UINT32_MAX ? 0 : uint64_t{said_ms} * 1'000'000;
}

template <typename Terms>
AllocationPolicy OfAllocation(const Terms& terms, uint32_t slots, uint32_t rescue_after_ms) {
  return {WeightOf(terms.weight), std::max(slots, 1u), PriorityOf(terms.priority),
          CeilingOf(terms.time_permille), StarvationOf(rescue_after_ms)};
}

}  // namespace gpuloom::arbiter
