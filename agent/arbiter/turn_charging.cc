// SPDX-License-Identifier: Apache-2.0
// What domains are charged for their turns, and how that is divided among their allocations.
#include <algorithm>
#include <utility>

#include "agent/arbiter/turn_arbiter.h"

namespace gpuloom::arbiter {
namespace {

uint64_t SumOf(const std::vector<Ran>& division) {
  uint64_t sum = 0;
  for (const Ran& ran : division) sum += ran.used_ns_untrusted;
  return sum;
}

}  // namespace

// A domain is metered from Grant until Drained, except while it has a turn but wants nothing:
// another gets the device then.
void TurnArbiter::Meter(uint32_t number, uint64_t now_ns) {
  Domain& it = domains_[number];
  const bool metered = it.state == State::kGranted ? it.wanting != 0 : it.state != State::kIdle;
  if (metered == it.metered) return;
  NoteOverruns(now_ns);
  it.metered = metered;
  if (metered) {
    meter_.Begin(number, now_ns);
  } else {
    meter_.End(number, now_ns);
  }
  meter_.SettleTo(now_ns);
}

// Adds to `alone_ns` of the domain that has the turn what it was charged while no other domain wanted one. Call before a
// domain gets or loses the turn or begins or ceases to want one, and when a turn has begun.
void TurnArbiter::CountAlone(uint64_t now_ns) {
  meter_.SettleTo(now_ns);
  const uint64_t charged_ns = turn_.domain == kNone ? 0 : meter_.charged_ns(turn_.domain);
  if (turn_.domain != kNone && counted_ == turn_.domain && Alone(turn_.domain)) {
    domains_[turn_.domain].alone_ns += charged_ns - counted_ns_;
  }
  counted_ = turn_.domain;
  counted_ns_ = charged_ns;
}

// Counts `ns` as used by the allocation. `owed_ns` of it is owed to others and counts against its ceiling.
void TurnArbiter::Pay(uint32_t allocation, uint64_t ns, uint64_t owed_ns, uint64_t now_ns) {
  if (ns == 0) return;
  Allocation& it = allocations_[allocation];
  it.charged_ns += ns;
  if (owed_ns != 0) policy_.tree().Charge(it.leaf, owed_ns, now_ns);
}

// Divides what the domain was charged since the last call among its allocations, in proportion to the use that its executor
// reported. Time in which no other domain wanted a turn is counted, but not owed: PayAlone decides how much of it is.
// Nanoseconds lost by rounding go to the next allocation, so the amounts add up to the whole.
void TurnArbiter::Settle(uint32_t number, uint64_t now_ns) {
  CountAlone(now_ns);
  Domain& it = domains_[number];
  const uint64_t unpaid_ns = meter_.charged_ns(number) - it.paid_ns;
  const uint64_t owed_ns = unpaid_ns - std::min(unpaid_ns, std::exchange(it.alone_ns, 0));
  if (unpaid_ns == 0) return;
  it.paid_ns += unpaid_ns;
  it.unreported_ns += owed_ns;
  it.unreported_alone_ns += unpaid_ns - owed_ns;
  __extension__ using Wide = unsigned __int128;
  const auto pay = [&](uint32_t allocation, uint64_t ns) {
    Pay(allocation, ns, static_cast<uint64_t>(Wide{ns} * owed_ns / unpaid_ns), now_ns);
  };
  const uint64_t sum = SumOf(it.division);
  if (sum == 0) {
    // The executor said nothing that can be used: the whole goes to the allocation for which the
    // turn was given, or to another of the domain. Saying nothing must not make time free.
    if (it.winner != kNone) {
      pay(it.winner, unpaid_ns);
    } else if (!it.allocations.empty()) {
      pay(it.allocations.front(), unpaid_ns);
    } else {
      unattributed_ns_ += unpaid_ns;
    }
    return;
  }
  // The running sum is scaled, not each part: the last value is exactly unpaid_ns.
  uint64_t before = 0;
  uint64_t paid_ns = 0;
  for (const Ran& ran : it.division) {
    before += ran.used_ns_untrusted;
    const auto upto_ns = static_cast<uint64_t>(Wide{unpaid_ns} * before / sum);
    pay(static_cast<uint32_t>(ran.allocation_untrusted), upto_ns - paid_ns);
    paid_ns = upto_ns;
  }
}

// The division comes from an executor that a tenant may have taken over: other domains' allocations are skipped, so it
// can charge only its own, and amounts are cut so that sums cannot overflow. It is kept until the next one; the time
// since the last charge is divided by it at once.
void TurnArbiter::Divide(DomainId id, std::span<const Ran> division_untrusted, uint64_t now_ns) {
  Domain& it = At(id);
  it.division.clear();
  for (const Ran& ran : division_untrusted.first(std::min(division_untrusted.size(), kMaxNamed))) {
    const auto number = static_cast<size_t>(ran.allocation_untrusted);
    if (number >= allocations_.size() || !allocations_[number].used ||
        allocations_[number].domain != id) {
      continue;
    }
    // Together below 2^63: each fits into 51 bits, and there are 2^12.
    constexpr uint64_t kMost = (uint64_t{1} << 51) - 1;
    it.division.push_back({ran.allocation_untrusted, std::min(ran.used_ns_untrusted, kMost)});
  }
  Settle(static_cast<uint32_t>(id), now_ns);
  PayAlone(static_cast<uint32_t>(id), now_ns);
}

// A domain that is alone keeps its turn for as long as it wants anything, even work that its ceiling holds back for a
// minute. So of that time it owes only what its executor reports as used. Reporting less gains nothing: no other domain
// wanted that time.
void TurnArbiter::PayAlone(uint32_t number, uint64_t now_ns) {
  Domain& it = domains_[number];
  const uint64_t sum = SumOf(it.division);
  const uint64_t beyond_ns = sum - std::min(sum, std::exchange(it.unreported_ns, 0));
  const uint64_t owed_ns = std::min(std::exchange(it.unreported_alone_ns, 0), beyond_ns);
  if (owed_ns == 0) return;
  __extension__ using Wide = unsigned __int128;
  for (const Ran& ran : it.division) {
    const auto part_ns = static_cast<uint64_t>(Wide{owed_ns} * ran.used_ns_untrusted / sum);
    const Allocation& allocation = allocations_[static_cast<size_t>(ran.allocation_untrusted)];
    if (part_ns != 0) policy_.tree().Charge(allocation.leaf, part_ns, now_ns);
  }
}

}  // namespace gpuloom::arbiter
