// SPDX-License-Identifier: Apache-2.0
// When a session whose work at the device does not end may submit more out of its turn. A kernel may wait for work that
// its own program has queued in another stream, or wait for as long as the program lasts; the session's share must not keep
// that work away for ever. What goes in this way nobody else has agreed to, so it is bounded in time: the session waits
// first, and then sixteen times as long as what went the last time took, and twice as long each time as long as that has
// not ended.
//
//   if (stall.IsDue(least_ns, now)) → Submitted(…) → Ended(…) once everything that went has ended
//
// Plain value, one for a session; no clock, one thread. Nanoseconds. Nothing fails.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::arbiter {

class Stall {
 public:
  static constexpr uint64_t kShare = 16;
  // `least_ns` at most so often doubled.
  static constexpr uint32_t kDoublings = 8;

  // Some of the session's work has ended, or it has none at the device.
  void WentOn(uint64_t now_ns) { since_ns_ = now_ns; }
  // It has had a turn: what is to come is timed from the start.
  void HadATurn() { doublings_ = 0; }

  bool IsDue(uint64_t least_ns, uint64_t now_ns) const {
    return now_ns - since_ns_ >= least_ns << doublings_;
  }

  // Something went, where `before` of the session's pieces were at the device.
  void Submitted(uint64_t before, uint64_t least_ns, uint64_t now_ns) {
    since_ns_ = submitted_ns_ = now_ns;
    before_ = before;
    least_ns_ = least_ns;
    doublings_ = std::min(doublings_ + 1, kDoublings);
    awaits_ = true;
  }
  // Call when pieces have ended and so many are at the device.
  void Ended(uint64_t pieces, uint64_t now_ns) {
    if (!awaits_ || pieces > before_) return;
    awaits_ = false;
    const uint64_t next_ns = (now_ns - submitted_ns_) * kShare;
    for (doublings_ = 0; doublings_ < kDoublings && least_ns_ << doublings_ < next_ns;) {
      ++doublings_;
    }
  }

 private:
  uint64_t since_ns_ = 0;
  uint32_t doublings_ = 0;
  bool awaits_ = false;  // what went has not ended
  uint64_t before_ = 0;
  uint64_t least_ns_ = 0;
  uint64_t submitted_ns_ = 0;
};

}  // namespace gpuloom::arbiter
