// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/busy_meter.h"

#include <algorithm>

namespace gpuloom::arbiter {

// An end sorts behind a begin of the same moment only if it was added later: a piece of no length
// is a begin and an end.
bool BusyMeter::Later(const Edge& a, const Edge& b) {
  return a.at_ns != b.at_ns ? a.at_ns > b.at_ns : a.order > b.order;
}

// An edge before the settled moment cannot change what has been charged, so it is moved there;
// late_ns() tells the caller how much was misattributed.
void BusyMeter::Add(uint32_t owner, uint64_t at_ns, bool begins) {
  if (at_ns < settled_ns_) {
    late_ns_ += settled_ns_ - at_ns;
    at_ns = settled_ns_;
  }
  if (owner >= owners_.size()) owners_.resize(owner + 1);
  edges_.push_back({at_ns, orders_++, owner, begins});
  std::push_heap(edges_.begin(), edges_.end(), Later);
}

// Instead of adding to each owner that runs, one sum grows by each one's part of the moment: an
// owner's charge is the difference of each_ns_ between its beginning and its end. So a moment costs
// the same however many run. The remainder of the division stays for the next moment.
void BusyMeter::Advance(uint64_t at_ns) {
  if (running_ != 0) {
    busy_ns_ += at_ns - settled_ns_;
    remainder_ns_ += at_ns - settled_ns_;
    each_ns_ += remainder_ns_ / running_;
    remainder_ns_ %= running_;
  }
  settled_ns_ = at_ns;
}

void BusyMeter::SettleTo(uint64_t at_ns) {
  while (!edges_.empty() && edges_.front().at_ns <= at_ns) {
    std::pop_heap(edges_.begin(), edges_.end(), Later);
    const Edge edge = edges_.back();
    edges_.pop_back();
    // The last one to leave gets the remainder: divided by one, nothing is left.
    Advance(edge.at_ns);
    Owner& owner = owners_[edge.owner];
    if (edge.begins) {
      if (owner.pieces++ == 0) {
        owner.since = each_ns_;
        ++running_;
      }
    } else if (owner.pieces == 0) {
      // An End whose Begin was never added must not take away a piece that runs.
      ++unmatched_;
    } else if (--owner.pieces == 0) {
      owner.charged_ns += each_ns_ - owner.since;
      --running_;
    }
  }
  // Also when no time has passed: with fewer to divide among, less is left over.
  Advance(std::max(at_ns, settled_ns_));
}

uint64_t BusyMeter::charged_ns(uint32_t owner) const {
  if (owner >= owners_.size()) return 0;
  const Owner& it = owners_[owner];
  return it.charged_ns + (it.pieces == 0 ? 0 : each_ns_ - it.since);
}

uint64_t BusyMeter::Take(uint32_t owner) {
  const uint64_t charged = charged_ns(owner);
  if (owner >= owners_.size()) return 0;
  const uint64_t since_then_ns = charged - owners_[owner].taken_ns;
  owners_[owner].taken_ns = charged;
  return since_then_ns;
}

}  // namespace gpuloom::arbiter
