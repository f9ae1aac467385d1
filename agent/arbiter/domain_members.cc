// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/domain_members.h"

#include <algorithm>

namespace gpuloom::arbiter {

// Nobody tells of changes while an allocation has no sessions: what is known of it may be older than these terms.
AllocationId DomainMembers::Join(uint64_t space, uint64_t allocation, const Terms& terms,
                                 uint64_t now_ns) {
  const auto [in, new_space] = namespaces_.try_emplace(space);
  if (new_space) {
    in->second.id = arbiter_->AddNamespace(terms.of_namespace, now_ns);
  } else {
    arbiter_->SetNamespace(in->second.id, terms.of_namespace, now_ns);
  }
  const auto [it, new_allocation] = allocations_.try_emplace(allocation);
  if (new_allocation) {
    it->second = {arbiter_->AddAllocation(in->second.id, terms.of_allocation, now_ns), space};
    ++in->second.allocations;
  } else {
    arbiter_->SetAllocation(it->second.id, terms.of_allocation, now_ns);
  }
  ++it->second.sessions;
  return it->second.id;
}

// The table is by the scheduler's numbers, so this looks through it: once for each session that ends.
void DomainMembers::Leave(AllocationId id) {
  const auto it = std::find_if(allocations_.begin(), allocations_.end(),
                               [id](const auto& entry) { return entry.second.id == id; });
  any_unused_ |= --it->second.sessions == 0;
}

bool DomainMembers::Set(uint64_t allocation, const Terms& terms, uint64_t now_ns) {
  const auto it = allocations_.find(allocation);
  if (it == allocations_.end()) return false;
  arbiter_->SetNamespace(namespaces_.at(it->second.space).id, terms.of_namespace, now_ns);
  arbiter_->SetAllocation(it->second.id, terms.of_allocation, now_ns);
  return true;
}

void DomainMembers::Forget(uint64_t now_ns) {
  if (!any_unused_) return;
  any_unused_ = false;
  size_t kept = 0;
  const auto is_kept = [&](auto id) {
    if (kept == kMostUnused || !arbiter_->Owes(id, now_ns)) return false;
    ++kept;
    any_unused_ = true;
    return true;
  };
  std::erase_if(allocations_, [&](const auto& entry) {
    const Allocation& it = entry.second;
    if (it.sessions != 0 || is_kept(it.id)) return false;
    arbiter_->RemoveAllocation(it.id, now_ns);
    --namespaces_.at(it.space).allocations;
    return true;
  });
  std::erase_if(namespaces_, [&](const auto& entry) {
    const Namespace& it = entry.second;
    if (it.allocations != 0 || is_kept(it.id)) return false;
    arbiter_->RemoveNamespace(it.id, now_ns);
    return true;
  });
}

}  // namespace gpuloom::arbiter
