// SPDX-License-Identifier: Apache-2.0
// How long a program's next work is waited for before its turn at the device goes to another domain: the device is idle
// meanwhile, and a turn that was given up too early costs the program a wait for all others. So it is twice the longest of its
// latest pauses that was not longer than `most_ns`, which is where it begins. A program that computes for a quarter of a
// millisecond, then thinks for two, shows no such pause and is waited for `least_ns`.
//
// No clock and no I/O. One thread.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::arbiter {

class Patience {
 public:
  constexpr Patience(uint64_t least_ns, uint64_t most_ns)
      : least_ns_(least_ns), most_ns_(most_ns), longest_ns_(most_ns) {}

  // It had nothing for so long, and has work again.
  void Paused(uint64_t ns) {
    longest_ns_ -= longest_ns_ / kForgets;
    if (ns <= most_ns_) longest_ns_ = std::max(longest_ns_, ns);
  }

  uint64_t ns() const { return std::clamp(2 * longest_ns_, least_ns_, most_ns_); }

  // A pause is forgotten by half within so many times 0.7: one in fifty that is long keeps the turn.
  static constexpr uint64_t kForgets = 64;

 private:
  uint64_t least_ns_;
  uint64_t most_ns_;
  uint64_t longest_ns_;  // of the latest, fading
};

}  // namespace gpuloom::arbiter
