// SPDX-License-Identifier: Apache-2.0
// How long the device waits, idle, for a program's next work before its turn goes to another domain. A turn that is
// given up too early costs the program a wait for all others. So the patience is twice the longest of the program's
// recent pauses; it begins at `most_ns`, and pauses longer than that do not count. A program that computes for a
// quarter of a millisecond and then thinks for two shows no such pause, and gets `least_ns`.
//
// Plain value, a member of the executor's turns, no clock and no I/O; one thread. Nothing fails. Nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::arbiter {

class Patience {
 public:
  constexpr Patience(uint64_t least_ns, uint64_t most_ns)
      : least_ns_(least_ns), most_ns_(most_ns), longest_ns_(most_ns) {}

  // The program had no work for this long, and has work again.
  void Paused(uint64_t ns) {
    longest_ns_ -= longest_ns_ / kForgets;
    if (ns <= most_ns_) longest_ns_ = std::max(longest_ns_, ns);
  }

  uint64_t ns() const { return std::clamp(2 * longest_ns_, least_ns_, most_ns_); }

  // A pause counts half after 0.7 times as many further pauses: if one in fifty is long, the turn is kept.
  static constexpr uint64_t kForgets = 64;

 private:
  uint64_t least_ns_;
  uint64_t most_ns_;
  uint64_t longest_ns_;  // the longest of the recent pauses, fading
};

}  // namespace gpuloom::arbiter
