// SPDX-License-Identifier: Apache-2.0
#include "agent/identity/collector.h"

#include <algorithm>

namespace gpuloom {
namespace {

// Any common ID: an init container's allocation may have some of its pod's only.
bool Overlap(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  return std::any_of(a.begin(), a.end(),
                     [&](const auto& id) { return std::find(b.begin(), b.end(), id) != b.end(); });
}

bool IsHeld(const Allocation& allocation, const std::vector<ContainerDevices>& held) {
  return std::any_of(held.begin(), held.end(), [&](const ContainerDevices& container) {
    if (!Overlap(container.device_ids, allocation.device_ids)) return false;
    // Before its first PreStartContainer an allocation has no pod: any holder may be it.
    return !allocation.binding.has_value() ||
           (allocation.binding->owner.pod_namespace == container.owner.pod_namespace &&
            allocation.binding->owner.pod == container.owner.pod);
  });
}

// True when the kubelet has since handed one of its IDs to another pod, even one of the same name: it does so when nothing
// of the earlier pod runs any more.
// All containers of a pod are allocated before the first of them is started, so an allocation made
// after this one was bound, and bound itself, is of a later pod. An unbound one is superseded by
// any later one that was bound: its own pod never started a container.
bool IsSuperseded(const Allocation& allocation, const std::vector<Allocation>& all,
                  Clock::Duration grace) {
  return std::any_of(all.begin(), all.end(), [&](const Allocation& later) {
    if (later.name == allocation.name || !later.binding.has_value()) return false;
    if (!Overlap(later.device_ids, allocation.device_ids)) return false;
    return allocation.binding.has_value() ? later.created_at > allocation.binding->bound_at
                                          : later.created_at > allocation.created_at + grace;
  });
}

}  // namespace

std::vector<std::string> Collector::Judge(const std::vector<Allocation>& allocations,
                                          const std::vector<ContainerDevices>& held,
                                          Clock::Time now) {
  // The lists of these minutes are no evidence, neither of who is there nor of who is not: what was missing before counts
  // from anew.
  const bool is_quiet = now < quiet_until_;
  std::vector<std::string> over;
  // Made anew for each list, so that the time of an allocation that is seen once starts again.
  std::map<std::string, Clock::Time> still_missing;
  std::set<std::string> gone;
  for (const Allocation& allocation : allocations) {
    const bool is_superseded = IsSuperseded(allocation, allocations, times_.grace);
    if (is_superseded && allocation.binding.has_value()) {
      // No list is needed to know it, so none can be wrong about it.
      gone.insert(allocation.name);
      over.push_back(allocation.name);
      continue;
    }
    // A pod that has got as far as PreStartContainer was in a list already; before, it may not be in any yet. One from
    // the future was made before a reboot that lost the date: it is not young.
    const bool is_young = !allocation.binding.has_value() && now >= allocation.created_at &&
                          now < allocation.created_at + times_.grace;
    if (is_quiet || is_young) continue;
    if (IsHeld(allocation, held) && !is_superseded) continue;
    gone.insert(allocation.name);
    const auto known = missing_since_.find(allocation.name);
    const Clock::Time since = known == missing_since_.end() ? now : known->second;
    if (now - since >= times_.missing) {
      // Not in still_missing: if it cannot be removed, its time begins anew.
      over.push_back(allocation.name);
    } else {
      still_missing[allocation.name] = since;
    }
  }
  missing_since_ = std::move(still_missing);
  gone_ = std::move(gone);
  return over;
}

std::map<std::string, size_t> DevicesLeft(const std::vector<Allocation>& allocations) {
  std::map<std::string, std::string> holders;  // by device ID
  for (const Allocation& allocation : allocations) {
    if (!allocation.binding.has_value()) continue;
    for (const std::string& id : allocation.device_ids) holders[id] = allocation.name;
  }
  std::map<std::string, size_t> left;
  for (const Allocation& allocation : allocations) {
    if (allocation.binding.has_value()) left[allocation.name] = 0;
  }
  for (const auto& [id, name] : holders) ++left[name];
  return left;
}

}  // namespace gpuloom
