// SPDX-License-Identifier: Apache-2.0
// The share tree as the policy sees it: priority class → namespace → allocation → leaves. A
// namespace has a group in every class, because its pods' rules may put allocations into lower
// classes than its own; its weight holds in each of them, and its ceiling for all of them together.
//
// A pod's rule can only redistribute within its namespace: its weight counts against the allocations of the same
// namespace. The code that reads the policy checks that the rule's class is not above the namespace's.
//
// Ids are small numbers, reused after Remove…; the same calls in the same order give the same ids. Plain value, one
// thread. A wrong id is our bug. `now_ns` is any clock that never goes back.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/arbiter/share_tree.h"

namespace gpuloom::arbiter {

enum class NamespaceId : uint32_t {};
enum class AllocationId : uint32_t {};

struct NamespacePolicy {
  uint32_t weight = 100;                           // 1–1000
  uint32_t ceiling_permille = kNoCeilingPermille;  // timeShareMax, for all its allocations together
};

struct AllocationPolicy {
  uint32_t weight = 100;  // 1–1000, among its namespace's
  uint32_t slots = 1;     // multiplies the weight
  Priority priority = Priority::kNormal;
  // timeShareMax of a pod's rule, for this allocation.
  uint32_t ceiling_permille = kNoCeilingPermille;
  // rescueAfter: how long its work may wait behind a higher class's. 0: for ever; nullopt: PolicyTree's default.
  std::optional<uint64_t> starvation_ns = {};
};

class PolicyTree {
 public:
  // `starvation_ns`: for allocations whose policy sets none.
  PolicyTree(const ShareTree::Limits& limits, uint64_t starvation_ns)
      : tree_(limits), starvation_ns_(starvation_ns) {}

  NamespaceId AddNamespace(const NamespacePolicy& policy, uint64_t now_ns);
  // Changes of policy apply from the next order on. Virtual times stay, except for an allocation that changes its
  // class: it begins there as a newcomer.
  void SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns);
  void RemoveNamespace(NamespaceId id, uint64_t now_ns);  // when it has no allocations

  AllocationId AddAllocation(NamespaceId space, const AllocationPolicy& policy, uint64_t now_ns);
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);
  void RemoveAllocation(AllocationId id, uint64_t now_ns);  // when it has no leaves

  // What has neither allocations nor leaves may be removed when it owes nothing: until then, whoever comes back under
  // its name would be rid of what it has overdrawn (ShareTree::Owes).
  bool Owes(NamespaceId id, uint64_t now_ns) const;
  bool Owes(AllocationId id, uint64_t now_ns) const { return tree_.Owes(At(id).group, now_ns); }

  // The shortest limit of all allocations of the class; which of them is rescued is up to its share tree. 0: they may
  // all starve.
  uint64_t starvation_ns(Priority priority) const { return starvation_ns_of_[Index(priority)]; }

  ShareTree::Node group(AllocationId id) const { return At(id).group; }
  Priority priority(AllocationId id) const { return At(id).priority; }
  ShareTree& tree() { return tree_; }
  const ShareTree& tree() const { return tree_; }

 private:
  struct Namespace {
    std::array<ShareTree::Node, kPriorities> groups;
    ShareTree::CeilingId ceiling = ShareTree::kNone;
  };
  struct Allocation {
    NamespaceId space;
    Priority priority;
    ShareTree::Node group;
    ShareTree::CeilingId ceiling = ShareTree::kNone;
    uint64_t starvation_ns = 0;  // 0 also for a free place
  };

  const Allocation& At(AllocationId id) const { return allocations_[static_cast<size_t>(id)]; }
  template <size_t kCount>
  void SetCeiling(const std::array<ShareTree::Node, kCount>& nodes, ShareTree::CeilingId* ceiling,
                  uint32_t permille, uint64_t now_ns);
  // Walks over all allocations: policy changes are not on the hot path.
  void FindStarvation();

  ShareTree tree_;
  const uint64_t starvation_ns_;
  std::array<uint64_t, kPriorities> starvation_ns_of_ = {};
  std::vector<Namespace> namespaces_;
  std::vector<Allocation> allocations_;
  std::vector<uint32_t> free_namespaces_;
  std::vector<uint32_t> free_allocations_;
};

}  // namespace gpuloom::arbiter
