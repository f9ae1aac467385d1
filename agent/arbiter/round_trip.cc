// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/round_trip.h"

#include <algorithm>

namespace gpuloom::arbiter {

bool RoundTrip::Take(uint64_t now_ns) {
  if (now_ns < next_ns_) return false;
  next_ns_ = now_ns + (learned_ < kKept ? kEveryAtFirstNs : kEveryNs);
  return true;
}

void RoundTrip::Learn(uint64_t seen_ns, uint64_t timed_ns) {
  if (timed_ns > kLongestNs || seen_ns < timed_ns) return;
  const uint64_t worked_ns = timed_ns - std::min(timed_ns, kEventsNs);
  seen_[learned_++ % kKept] = std::min(seen_ns - worked_ns, kMostNs);
  const size_t kept = std::min(learned_, kKept);
  if (kept < kEnough) return;
  std::array<uint64_t, kKept> sorted = seen_;
  const auto median = sorted.begin() + static_cast<ptrdiff_t>(kept / 2);
  std::nth_element(sorted.begin(), median, sorted.begin() + static_cast<ptrdiff_t>(kept));
  ns_ = *median;
}

}  // namespace gpuloom::arbiter
