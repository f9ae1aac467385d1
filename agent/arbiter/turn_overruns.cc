// SPDX-License-Identifier: Apache-2.0
// Domains that do not leave the device when their turn has ended: what they have had beside others, and what they owe for it.
#include <algorithm>
#include <utility>
#include <vector>

#include "agent/arbiter/turn_arbiter.h"

namespace gpuloom::arbiter {

// The domain did not drain in time. It is watched while others have their turns, does not compete
// in the tree, and its use of their time is counted from zero.
void TurnArbiter::BeginOverrun(uint32_t number, uint64_t now_ns) {
  Domain& it = domains_[number];
  Settle(number, now_ns);
  it.state = State::kOverrunning;
  ++it.overruns;
  it.out = true;
  ShowAll(it, now_ns);
  it.overran_ns = 0;
  it.noted_ns = meter_.charged_ns(number);
  it.evens_at_ns = OthersNs(number);
  overrunning_.push_back(number);
  out_.push_back(number);
}

// Returns true if the domain takes too long to drain. Only the scheduler's clock decides: the
// executor's claims about its work are not trusted.
bool TurnArbiter::IsLate(const Domain& domain, uint64_t now_ns) const {
  return domain.state == State::kYielding && now_ns - domain.yields_since_ns >= limits_.overrun_ns;
}

// Marks late domains as overrunning, and returns one order that is due for them: callers ask Next
// until there is none. An end comes before a report.
std::optional<TurnOrder> TurnArbiter::Watch(uint64_t now_ns) {
  if (turn_.domain != kNone && IsLate(domains_[turn_.domain], now_ns)) {
    BeginOverrun(turn_.domain, now_ns);
    EndTurn(now_ns);
  }
  std::erase_if(leaving_, [&](uint32_t number) {
    if (!IsLate(domains_[number], now_ns)) return false;
    BeginOverrun(number, now_ns);
    return true;
  });
  NoteOverruns(now_ns);
  for (const uint32_t number : overrunning_) {
    Domain& it = domains_[number];
    if (!it.ended && it.overran_ns >= it.overrun_end_ns) {
      it.ended = true;
      return TurnOrder{TurnOrder::Kind::kEnd, DomainId{number}, Priority::kLow, 0};
    }
    if (it.reported || now_ns - it.yields_since_ns < limits_.report_ns) continue;
    it.reported = true;
    return TurnOrder{TurnOrder::Kind::kReport, DomainId{number}, Priority::kLow, 0};
  }
  return std::nullopt;
}

// Adds up what domains that overrun have had beside others. Call it before every change of who is at the device.
void TurnArbiter::NoteOverruns(uint64_t now_ns) {
  if (overrunning_.empty()) return;
  // The meter is settled with who has been at the device since the last change, so `running` below
  // is right for the whole stretch.
  meter_.SettleTo(now_ns);
  for (const uint32_t number : overrunning_) {
    Domain& it = domains_[number];
    const uint64_t charged_ns = meter_.charged_ns(number);
    const uint64_t more_ns = charged_ns - it.noted_ns;
    it.noted_ns = charged_ns;
    // Alone it took nothing from anybody, and owes nothing for it.
    if (meter_.running() < 2 || more_ns == 0) continue;
    it.overran_ns += more_ns;
    it.evens_at_ns += static_cast<uint64_t>(static_cast<double>(more_ns) * OthersTimes(it));
  }
}

// What all other domains have been charged.
uint64_t TurnArbiter::OthersNs(uint32_t number) const {
  return meter_.busy_ns() - meter_.charged_ns(number);
}

uint64_t TurnArbiter::OwesNs(uint32_t number) const {
  return domains_[number].even_at_ns - std::min(domains_[number].even_at_ns, OthersNs(number));
}

// How many times as much as the domain the others are to have, as things are at present. Bounded by the share of time
// that may go to rescues from starvation: otherwise a domain of little weight would wait for hours because of a kernel
// of seconds.
double TurnArbiter::OthersTimes(const Domain& domain) const {
  constexpr double kMost = StarvationGuard::kPauseShare - 1;
  // While it overruns it does not compete itself.
  const auto higher = was_active_.begin() + static_cast<ptrdiff_t>(Index(domain.priority));
  if (std::any_of(was_active_.begin(), higher, [](bool active) { return active; })) return kMost;
  std::vector<ShareTree::Node> leaves;
  for (const uint32_t number : domain.allocations) {
    const Allocation& it = allocations_[number];
    if (it.wants && it.priority == domain.priority) leaves.push_back(it.leaf);
  }
  const double part = policy_.tree().PartOf(leaves);
  return part * (kMost + 1) <= 1 ? kMost : (1 - std::min(part, 1.0)) / part;
}

// Since when no domain that may have a turn has wanted one; UINT64_MAX: one does.
uint64_t TurnArbiter::QuietSinceNs() const {
  uint64_t since_ns = 0;
  for (size_t i = 0; i < kPriorities; ++i) {
    if (was_active_[i]) return UINT64_MAX;
    since_ns = std::max(since_ns, active_until_ns_[i]);
  }
  return since_ns;
}

}  // namespace gpuloom::arbiter
