// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/turn_arbiter.h"

#include <algorithm>
#include <cassert>

#include "agent/arbiter/cut_point.h"

namespace gpuloom::arbiter {

TurnArbiter::TurnArbiter(const TurnLimits& limits)
    : limits_(limits), policy_(limits.shares, limits.starvation_ns) {}

NamespaceId TurnArbiter::AddNamespace(const NamespacePolicy& policy, uint64_t now_ns) {
  return policy_.AddNamespace(policy, now_ns);
}

void TurnArbiter::SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns) {
  policy_.SetNamespace(id, policy, now_ns);
}

void TurnArbiter::RemoveNamespace(NamespaceId id, uint64_t now_ns) {
  policy_.RemoveNamespace(id, now_ns);
}

DomainId TurnArbiter::AddDomain() {
  uint32_t place = static_cast<uint32_t>(domains_.size());
  if (free_domains_.empty()) {
    domains_.emplace_back();
  } else {
    place = free_domains_.back();
    free_domains_.pop_back();
    // The meter keeps counting under this number.
    const uint64_t paid_ns = domains_[place].paid_ns;
    domains_[place] = Domain{};
    domains_[place].paid_ns = paid_ns;
  }
  domains_[place].used = true;
  domains_[place].overrun_end_ns = limits_.overrun_end_ns;
  return DomainId{place};
}

AllocationId TurnArbiter::AddAllocation(NamespaceId space, DomainId domain,
                                        const AllocationPolicy& policy, uint64_t now_ns) {
  const AllocationId id = policy_.AddAllocation(space, policy, now_ns);
  const size_t place = static_cast<size_t>(id);
  if (place >= allocations_.size()) allocations_.resize(place + 1);
  Allocation& it = allocations_[place] = Allocation{};
  it.used = true;
  it.domain = domain;
  it.priority = policy.priority;
  it.leaf = policy_.tree().AddLeaf(policy_.group(id), 1);
  if (it.leaf >= allocation_of_leaf_.size()) allocation_of_leaf_.resize(it.leaf + 1);
  allocation_of_leaf_[it.leaf] = static_cast<uint32_t>(id);
  At(domain).allocations.push_back(static_cast<uint32_t>(id));
  return id;
}

void TurnArbiter::SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns) {
  Allocation& it = At(id);
  if (it.wants) {
    --wanting_[Index(it.priority)];
    ++wanting_[Index(policy.priority)];
  }
  it.priority = policy.priority;
  policy_.SetAllocation(id, policy, now_ns);
  NoteClasses(now_ns);
}

// Order matters: its demand is withdrawn and the time up to now divided while its number is still
// valid; then nothing may refer to the number any more, because the next allocation reuses it.
void TurnArbiter::RemoveAllocation(AllocationId id, uint64_t now_ns) {
  Allocation& it = At(id);
  SetWants(id, false, now_ns);
  const auto number = static_cast<uint32_t>(id);
  const auto domain = static_cast<uint32_t>(it.domain);
  if (domains_[domain].used) {
    // The time used so far is divided while the allocation still has its part in it.
    Settle(domain, now_ns);
    std::erase(domains_[domain].allocations, number);
    std::erase_if(domains_[domain].division,
                  [id](const Ran& ran) { return ran.allocation_untrusted == id; });
  }
  if (domains_[domain].winner == number) domains_[domain].winner = kNone;
  if (turn_.allocation == number) turn_.allocation = kNone;
  policy_.tree().Remove(it.leaf, now_ns);
  policy_.RemoveAllocation(id, now_ns);
  it.used = false;
}

// Works in every state: Drained ends a yield or an overrun; a turn that was still granted is ended
// here. What the allocations used is settled before anyone else is charged.
void TurnArbiter::ExecutorEnded(DomainId id, uint64_t now_ns) {
  const auto number = static_cast<uint32_t>(id);
  Domain& it = At(id);
  NoteOverruns(now_ns);
  for (const uint32_t allocation : it.allocations) {
    SetWants(AllocationId{allocation}, false, now_ns);
  }
  Drained(id, now_ns);
  if (turn_.domain == number) {
    // It ended without having been asked to yield.
    it.state = State::kIdle;
    Meter(number, now_ns);
    Settle(number, now_ns);
    EndTurn(now_ns);
  }
  // The ended executor's account of its sessions does not apply to the next one.
  it.division.clear();
  it.unreported_ns = it.unreported_alone_ns = 0;
  // The next executor inherits what this one owes.
  if (OwesNs(number) != 0) return;
  it.out = false;
  std::erase(out_, number);
  ShowAll(it, now_ns);
}

void TurnArbiter::RemoveDomain(DomainId id, uint64_t now_ns) {
  ExecutorEnded(id, now_ns);
  assert(At(id).allocations.empty());
  std::erase(out_, static_cast<uint32_t>(id));
  At(id).used = false;
  free_domains_.push_back(static_cast<uint32_t>(id));
}

// Demand.

// The allocation that is to have the next turn; kNone if no allocation wants one, or those that do
// are out or at their ceilings. May begin a rescue, of the class that is due and has waited for longest:
// then the classes above it pause here until the rescued one has had a turn (EndTurn, MustYield).
uint32_t TurnArbiter::Choose(uint64_t now_ns) {
  guard_.BeginDue(kAllPriorities[kPriorities - 1], now_ns,
                  [&](Priority priority) -> std::optional<StarvationGuard::Waiting> {
                    const size_t i = Index(priority);
                    const bool higher = std::any_of(was_active_.begin(), was_active_.begin() + i,
                                                    [](bool active) { return active; });
                    if (!was_active_[i] || !higher) return std::nullopt;
                    return {{wanting_[i], policy_.starvation_ns(priority)}};
                  });
  for (const Priority priority : kAllPriorities) {
    if (guard_.pauses(priority)) continue;
    const ShareTree::Node leaf = policy_.tree().Pick(priority);
    if (leaf != ShareTree::kNone) return allocation_of_leaf_[leaf];
  }
  return kNone;
}

// Also renews a turn, and resumes a domain that yielded for lack of work and wants the device again
// before it has drained: that one is charged without a gap.
void TurnArbiter::BeginTurn(uint32_t allocation, uint64_t now_ns) {
  const Allocation& it = allocations_[allocation];
  const auto number = static_cast<uint32_t>(it.domain);
  CountAlone(now_ns);
  turn_.domain = number;
  turn_.allocation = allocation;
  turn_.priority = it.priority;
  turn_.ends_ns = now_ns + limits_.quantum_ns;
  if (domains_[number].state == State::kYielding) {
    Settle(number, now_ns);
    std::erase(leaving_, number);
  }
  domains_[number].state = State::kGranted;
  domains_[number].winner = allocation;
  domains_[number].priority = it.priority;
  domains_[number].rescued = guard_.rescuing(it.priority);
  Meter(number, now_ns);
  CountAlone(now_ns);
}

// No domain has a turn after this. The last one may still have work at the device.
void TurnArbiter::EndTurn(uint64_t now_ns) {
  CountAlone(now_ns);
  guard_.NoteProgress(turn_.priority, now_ns);
  turn_ = Turn{};
}

// Call when a turn is over, the one that domains which are out were to lose: readmits them unless
// they owe more time.
void TurnArbiter::Readmit(uint64_t now_ns) {
  const uint64_t quiet_ns = QuietSinceNs();
  const bool quiet = quiet_ns != UINT64_MAX && now_ns - quiet_ns >= limits_.quiet_ns;
  for (size_t i = 0; i < out_.size();) {
    Domain& it = domains_[out_[i]];
    if (it.state == State::kIdle && (quiet || OwesNs(out_[i]) == 0)) {
      it.out = false;
      it.even_at_ns = 0;
      ShowAll(it, now_ns);
      out_[i] = out_.back();
      out_.pop_back();
    } else {
      ++i;
    }
  }
}

void TurnArbiter::Drained(DomainId id, uint64_t now_ns) {
  const auto number = static_cast<uint32_t>(id);
  Domain& it = At(id);
  if (it.state == State::kYielding) {
    it.state = State::kIdle;
    Meter(number, now_ns);
    Settle(number, now_ns);
    // Its turn ended when it was asked to yield; others may have had theirs since.
    if (std::erase(leaving_, number) != 0) return;
    EndTurn(now_ns);
    Readmit(now_ns);
  } else if (it.state == State::kOverrunning) {
    it.state = State::kIdle;
    it.reported = it.ended = false;
    Meter(number, now_ns);
    // Settled and metered up to here before it leaves the list: NoteOverruns, in Meter, counts the
    // last stretch of the overrun.
    Settle(number, now_ns);
    std::erase(overrunning_, number);
    if (now_ns - it.yields_since_ns >= limits_.report_ns) it.even_at_ns = it.evens_at_ns;
    if (it.rescued) guard_.RanOn(it.yields_since_ns, now_ns);
  }
  // If it is not yielding, it was not asked to drain.
}

// Who wants the device throughout its turns and gets nothing done, because others of its domain are in the way, stays ahead
// of everybody, and its domain would be given one turn after the other. So after some such turns what it is offered counts
// as used. Not at once: whose turn it is in its domain is decided there, and evens out.
void TurnArbiter::ChargeUnused(uint64_t now_ns) {
  if (turn_.allocation == kNone) return;
  Allocation& it = allocations_[turn_.allocation];
  const bool used = std::exchange(it.seen_charged_ns, it.charged_ns) != it.charged_ns;
  it.unused_turns = used || !it.wants ? 0 : it.unused_turns + 1;
  if (it.unused_turns > kUnusedTurns) {
    policy_.tree().Charge(it.leaf, limits_.quantum_ns, now_ns);
  }
}

// Returns true if the domain that has the turn must yield. If its turn is over and it may go on,
// the turn is renewed.
bool TurnArbiter::MustYield(uint64_t now_ns) {
  Domain& its = domains_[turn_.domain];
  // While it is alone it takes time from no other domain: the quantum begins when another one wants
  // a turn.
  if (Alone(turn_.domain)) {
    guard_.NoteProgress(turn_.priority, now_ns);
    turn_.ends_ns = now_ns + limits_.quantum_ns;
    return false;
  }
  const bool over =
      now_ns >= turn_.ends_ns || turn_.allocation == kNone || !allocations_[turn_.allocation].wants;
  if (over) {
    // Before Choose, which must see the turn's cost and its class's progress, or would rescue that
    // class at once.
    Settle(turn_.domain, now_ns);
    ChargeUnused(now_ns);
    guard_.NoteProgress(turn_.priority, now_ns);
  }
  const uint32_t next = Choose(now_ns);
  if (next == kNone) {
    // The others are out or at their ceiling, and so is this one, unless it wants nothing.
    turn_.ends_ns = now_ns + limits_.quantum_ns;
    if (over) Readmit(now_ns);
    return its.wanting != 0;
  }
  const Allocation& it = allocations_[next];
  const bool same = static_cast<uint32_t>(it.domain) == turn_.domain;
  // An allocation of a higher class in the same domain makes it a turn of that class.
  if (same && !over && it.priority < turn_.priority) BeginTurn(next, now_ns);
  if (over && same) {
    // It has had a whole turn while others waited, and gets another.
    BeginTurn(next, now_ns);
    Readmit(now_ns);
  }
  if (same) return false;
  return over || it.priority < turn_.priority;
}

// The order for the domain that has the turn, if it differs from the last one.
std::optional<TurnOrder> TurnArbiter::Grant(uint64_t now_ns) {
  const bool alone = Alone(turn_.domain);
  const Priority lowest = alone ? Priority::kLow : turn_.priority;
  uint64_t in_flight_ns = alone ? kUnbounded : limits_.in_flight_ns;
  if (HigherLingers(now_ns)) in_flight_ns = limits_.lower_in_flight_ns;
  if (turn_.in_flight_ns == in_flight_ns && turn_.lowest == lowest) return std::nullopt;
  turn_.in_flight_ns = in_flight_ns;
  turn_.lowest = lowest;
  return TurnOrder{TurnOrder::Kind::kGrant, DomainId{turn_.domain}, lowest, in_flight_ns};
}

std::optional<TurnOrder> TurnArbiter::Next(uint64_t now_ns) {
  // Whatever the clock alone has changed comes first, so that all decisions of this call see the
  // same state.
  meter_.SettleTo(now_ns);
  policy_.tree().Wake(now_ns);
  NoteClasses(now_ns);
  // Takes a late turn away; the next one is granted below.
  if (auto report = Watch(now_ns)) return report;
  if (turn_.domain != kNone) {
    Domain& it = domains_[turn_.domain];
    // Nobody gets a turn before it has drained or is late (Watch): contexts do not run side by
    // side.
    if (it.state == State::kYielding) return std::nullopt;
    if (MustYield(now_ns)) {
      it.state = State::kYielding;
      it.yields_since_ns = now_ns;
      const uint32_t number = turn_.domain;
      Meter(number, now_ns);
      if (it.wanting == 0) {
        // It claims to have nothing at the device, so the next one does not wait for its answer. It
        // is charged until it has drained, so a false claim gains it nothing.
        leaving_.push_back(number);
        EndTurn(now_ns);
        Readmit(now_ns);
      }
      return TurnOrder{TurnOrder::Kind::kYield, DomainId{number}, Priority::kLow, 0};
    }
    return Grant(now_ns);
  }
  uint32_t next = Choose(now_ns);
  if (next == kNone && !out_.empty()) {
    // No other domain wants a turn: there is none to lose.
    Readmit(now_ns);
    next = Choose(now_ns);
  }
  if (next == kNone) return std::nullopt;
  BeginTurn(next, now_ns);
  return Grant(now_ns);
}

// Only what changes by time alone, as for one engine; every line mirrors a comparison with `now_ns`
// above. A moment too early costs a wake-up; one too late lets an overrun or a starved class wait.
uint64_t TurnArbiter::wake_at_ns(uint64_t now_ns) const {
  uint64_t wake_ns = policy_.tree().wake_at_ns();
  for (const uint32_t number : overrunning_) {
    const Domain& it = domains_[number];
    if (!it.reported) wake_ns = std::min(wake_ns, it.yields_since_ns + limits_.report_ns);
    // Assumes that it is charged as fast as now. While it runs alone it takes time from no other
    // domain.
    if (it.ended || meter_.running() < 2) continue;
    const uint64_t left_ns = it.overrun_end_ns - std::min(it.overrun_end_ns, it.overran_ns);
    wake_ns = std::min(wake_ns, now_ns + std::max<uint64_t>(left_ns, 1) * meter_.running());
  }
  for (const uint32_t number : leaving_) {
    wake_ns = std::min(wake_ns, domains_[number].yields_since_ns + limits_.overrun_ns);
  }
  const uint64_t quiet_ns = QuietSinceNs();
  for (const uint32_t number : out_) {
    const Domain& it = domains_[number];
    if (quiet_ns == UINT64_MAX || it.state != State::kIdle) continue;
    wake_ns = std::min(wake_ns, quiet_ns + limits_.quiet_ns);
  }
  if (turn_.domain == kNone) return wake_ns;
  const Domain& it = domains_[turn_.domain];
  if (it.state == State::kYielding) {
    return std::min(wake_ns, it.yields_since_ns + limits_.overrun_ns);
  }
  // No quantum ends. Only the bound for a higher class that lingers has yet to be lifted, if there
  // is one.
  if (Alone(turn_.domain)) {
    for (size_t i = 0; turn_.in_flight_ns != kUnbounded && i < Index(turn_.priority); ++i) {
      const uint64_t free_ns = active_until_ns_[i] + limits_.higher_linger_ns;
      if (ever_active_[i] && free_ns > now_ns) wake_ns = std::min(wake_ns, free_ns);
    }
    return wake_ns;
  }
  wake_ns = std::min(wake_ns, std::max(turn_.ends_ns, now_ns + 1));
  for (size_t i = 1; i < kPriorities; ++i) {
    if (!was_active_[i] || guard_.rescuing()) continue;
    const bool higher = std::any_of(was_active_.begin(), was_active_.begin() + i,
                                    [](bool active) { return active; });
    if (!higher) continue;
    wake_ns = std::min(wake_ns, guard_.DueAtNs(kAllPriorities[i], wanting_[i],
                                               policy_.starvation_ns(kAllPriorities[i])));
  }
  return wake_ns;
}

}  // namespace gpuloom::arbiter
