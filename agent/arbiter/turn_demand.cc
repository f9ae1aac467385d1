// SPDX-License-Identifier: Apache-2.0
// Which allocations want the device, and which classes.
#include <algorithm>

#include "agent/arbiter/turn_arbiter.h"

namespace gpuloom::arbiter {

// Updates the share tree. A domain that is out does not compete: its siblings do not wait for it,
// however far behind it is, and its classes do not count as active.
void TurnArbiter::Show(const Allocation& allocation, uint64_t now_ns) {
  const bool counts = allocation.wants && !At(allocation.domain).out;
  policy_.tree().SetLeaf(allocation.leaf, counts, counts, now_ns);
}

void TurnArbiter::ShowAll(const Domain& domain, uint64_t now_ns) {
  for (const uint32_t allocation : domain.allocations) Show(allocations_[allocation], now_ns);
  NoteClasses(now_ns);
}

void TurnArbiter::SetWants(AllocationId id, bool wants, uint64_t now_ns) {
  Allocation& it = At(id);
  if (it.wants == wants) return;
  CountAlone(now_ns);
  it.wants = wants;
  wanting_[Index(it.priority)] += wants ? 1 : -1;
  Domain& domain = At(it.domain);
  domain.wanting += wants ? 1 : -1;
  if (wants && domain.wanting == 1) ++wanting_domains_;
  if (!wants && domain.wanting == 0) --wanting_domains_;
  if (!wants) left_by_[Index(it.priority)] = static_cast<uint32_t>(it.domain);
  Meter(static_cast<uint32_t>(it.domain), now_ns);
  Show(it, now_ns);
  NoteClasses(now_ns);
}

// Returns true if no other domain wants the device, whether or not this one does: an idle domain
// keeps its turn until another asks.
bool TurnArbiter::Alone(uint32_t domain) const {
  return wanting_domains_ == (domains_[domain].wanting != 0 ? 1u : 0u);
}

// As in EngineArbiter: a class that becomes active or idle has not starved.
void TurnArbiter::NoteClasses(uint64_t now_ns) {
  for (const Priority priority : kAllPriorities) {
    const size_t i = Index(priority);
    const bool active = policy_.tree().active(priority);
    if (active == was_active_[i]) continue;
    was_active_[i] = active;
    ever_active_[i] = true;
    if (!active) active_until_ns_[i] = now_ns;
    guard_.HasNoWork(priority, now_ns);
  }
}

// Returns true if another domain has, or recently had, work of a higher class, which would have to
// wait for what is in flight here. Within this domain its own arbiter handles that.
bool TurnArbiter::HigherLingers(uint64_t now_ns) const {
  for (size_t i = 0; i < Index(turn_.priority); ++i) {
    if (was_active_[i]) {
      if (!Alone(turn_.domain)) return true;
    } else if (ever_active_[i] && left_by_[i] != turn_.domain &&
               now_ns - active_until_ns_[i] < limits_.higher_linger_ns) {
      return true;
    }
  }
  return false;
}

// Turns.

}  // namespace gpuloom::arbiter
