// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/round_trip.h"

#include <algorithm>

namespace gpuloom::arbiter {

// More often until there are enough samples to choose the median from; then seldom, because each
// timed launch costs the tenant's stream two events.
bool RoundTrip::Take(uint64_t now_ns) {
  if (now_ns < next_ns_) return false;
  next_ns_ = now_ns + (learned_ < kKept ? kEveryAtFirstNs : kEveryNs);
  return true;
}

void RoundTrip::Learn(uint64_t seen_ns, uint64_t timed_ns) {
  // Longer work is seen late for another reason (kLongestNs), and what took longer by the device's
  // clock than by the host's teaches nothing.
  if (timed_ns > kLongestNs || seen_ns < timed_ns) return;
  // What the device does for the events is not the kernel's work, and counts as latency.
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
