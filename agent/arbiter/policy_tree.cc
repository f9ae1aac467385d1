// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/policy_tree.h"

#include <algorithm>

namespace gpuloom::arbiter {
namespace {

// Places are reused, last freed first: the same calls give the same ids in every tree, on which
// DomainArbiter depends.
uint32_t AllocateIndex(std::vector<uint32_t>* free, size_t size) {
  if (free->empty()) return static_cast<uint32_t>(size);
  const uint32_t place = free->back();
  free->pop_back();
  return place;
}

// Slots multiply the weight: two slots are worth two allocations of one. Capped before it is
// narrowed: the product may have 64 bits.
uint32_t Weight(const AllocationPolicy& policy) {
  const uint64_t weight = uint64_t{policy.weight} * std::max(policy.slots, 1u);
  return static_cast<uint32_t>(std::min<uint64_t>(weight, ShareTree::kMaxWeight));
}

}  // namespace

// Binds all `nodes` to one ceiling of so many permille, changes the one that binds them already, or
// removes it where the policy has none. An unchanged ceiling keeps its bucket: a policy that is
// read again must not refill it.
template <size_t kCount>
void PolicyTree::SetCeiling(const std::array<ShareTree::Node, kCount>& nodes,
                            ShareTree::CeilingId* ceiling, uint32_t permille, uint64_t now_ns) {
  const bool wanted = permille < kNoCeilingPermille;
  if (wanted && *ceiling != ShareTree::kNone) {
    tree_.ChangeCeiling(*ceiling, permille, now_ns);
  } else if (wanted) {
    *ceiling = tree_.AddCeiling(permille, now_ns);
    for (const ShareTree::Node node : nodes) tree_.Bind(node, *ceiling, now_ns);
  } else if (*ceiling != ShareTree::kNone) {
    for (const ShareTree::Node node : nodes) tree_.Bind(node, ShareTree::kNone, now_ns);
    tree_.RemoveCeiling(*ceiling);
    *ceiling = ShareTree::kNone;
  }
}

NamespaceId PolicyTree::AddNamespace(const NamespacePolicy& policy, uint64_t now_ns) {
  const uint32_t place = AllocateIndex(&free_namespaces_, namespaces_.size());
  if (place == namespaces_.size()) namespaces_.emplace_back();
  Namespace& it = namespaces_[place] = Namespace{};
  for (const Priority priority : kAllPriorities) {
    it.groups[Index(priority)] = tree_.AddGroup(tree_.root(priority), policy.weight);
  }
  SetCeiling(it.groups, &it.ceiling, policy.ceiling_permille, now_ns);
  return NamespaceId{place};
}

void PolicyTree::SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns) {
  Namespace& it = namespaces_[static_cast<size_t>(id)];
  for (const ShareTree::Node group : it.groups) tree_.SetWeight(group, policy.weight, now_ns);
  SetCeiling(it.groups, &it.ceiling, policy.ceiling_permille, now_ns);
}

// The ceiling goes first: one that nodes are bound to cannot be removed.
void PolicyTree::RemoveNamespace(NamespaceId id, uint64_t now_ns) {
  Namespace& it = namespaces_[static_cast<size_t>(id)];
  SetCeiling(it.groups, &it.ceiling, kNoCeilingPermille, now_ns);
  for (const ShareTree::Node group : it.groups) tree_.Remove(group, now_ns);
  free_namespaces_.push_back(static_cast<uint32_t>(id));
}

AllocationId PolicyTree::AddAllocation(NamespaceId space, const AllocationPolicy& policy,
                                       uint64_t now_ns) {
  const uint32_t place = AllocateIndex(&free_allocations_, allocations_.size());
  if (place == allocations_.size()) allocations_.emplace_back();
  const Namespace& above = namespaces_[static_cast<size_t>(space)];
  Allocation& it = allocations_[place];
  it = {space, policy.priority,
        tree_.AddGroup(above.groups[Index(policy.priority)], Weight(policy)), ShareTree::kNone,
        policy.starvation_ns.value_or(starvation_ns_)};
  SetCeiling(std::array{it.group}, &it.ceiling, policy.ceiling_permille, now_ns);
  FindStarvation();
  return AllocationId{place};
}

void PolicyTree::SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns) {
  Allocation& it = allocations_[static_cast<size_t>(id)];
  tree_.SetWeight(it.group, Weight(policy), now_ns);
  const Namespace& above = namespaces_[static_cast<size_t>(it.space)];
  // Does nothing if the class is the same; in another class it is a newcomer.
  tree_.Move(it.group, above.groups[Index(policy.priority)], now_ns);
  it.priority = policy.priority;
  it.starvation_ns = policy.starvation_ns.value_or(starvation_ns_);
  SetCeiling(std::array{it.group}, &it.ceiling, policy.ceiling_permille, now_ns);
  FindStarvation();
}

void PolicyTree::RemoveAllocation(AllocationId id, uint64_t now_ns) {
  Allocation& it = allocations_[static_cast<size_t>(id)];
  SetCeiling(std::array{it.group}, &it.ceiling, kNoCeilingPermille, now_ns);
  tree_.Remove(it.group, now_ns);
  // FindStarvation also looks at places that are free: 0 makes it pass over them.
  it.starvation_ns = 0;
  FindStarvation();
  free_allocations_.push_back(static_cast<uint32_t>(id));
}

bool PolicyTree::Owes(NamespaceId id, uint64_t now_ns) const {
  const Namespace& it = namespaces_[static_cast<size_t>(id)];
  return std::any_of(it.groups.begin(), it.groups.end(),
                     [&](ShareTree::Node group) { return tree_.Owes(group, now_ns); });
}

void PolicyTree::FindStarvation() {
  starvation_ns_of_ = {};
  for (const Allocation& it : allocations_) {
    uint64_t& shortest_ns = starvation_ns_of_[Index(it.priority)];
    if (it.starvation_ns == 0) continue;
    if (shortest_ns == 0 || it.starvation_ns < shortest_ns) shortest_ns = it.starvation_ns;
  }
}

}  // namespace gpuloom::arbiter
