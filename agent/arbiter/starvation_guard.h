// SPDX-License-Identifier: Apache-2.0
// Sees to it that a lower class gets on although a higher one always wants the device. A class that has work and
// has not got on for a bound, its policy's, divided by its sessions with work is *rescued*: the higher ones pause until it has. So
// each of n sessions of equal weight gets on once within the bound.
//
// Pauses take at most one part in kPauseShare of the time: the next one is not before kPauseShare - 1 times the last
// one's length has passed. So with many sessions, or long kernels of theirs, the bound on one of them becomes
// n x kPauseShare x the length of a pause. A pause lasts until what higher classes have in flight
// has run out and something of the lower one has begun; it does not wait for its end.
//
// Plain value, one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/arbiter/priority.h"

namespace gpuloom::arbiter {

class StarvationGuard {
 public:
  static constexpr uint64_t kPauseShare = 10;

  // The class got on (something of it ran), or has had no work before.
  void GotOn(Priority priority, uint64_t now_ns) {
    got_on_ns_[Index(priority)] = now_ns;
    if (rescuing_ && rescued_ == priority) End(now_ns);
  }
  void HasNoWork(Priority priority, uint64_t now_ns) { GotOn(priority, now_ns); }

  // When a class whose so many sessions wait behind a higher one is to be rescued. bound_ns 0: its policy lets it starve.
  uint64_t DueAtNs(Priority priority, uint64_t sessions, uint64_t bound_ns) const {
    if (bound_ns == 0 || sessions == 0) return UINT64_MAX;
    return std::max(got_on_ns_[Index(priority)] + bound_ns / sessions, next_ns_);
  }

  void Begin(Priority priority, uint64_t now_ns) {
    rescuing_ = true;
    rescued_ = priority;
    since_ns_ = now_ns;
  }

  // What the class was rescued for ran on until now, though the pause had ended: it counts as if the pause had gone on.
  void RanOn(uint64_t since_ns, uint64_t now_ns) {
    next_ns_ = std::max(next_ns_, now_ns + (now_ns - since_ns) * (kPauseShare - 1));
  }

  bool rescuing() const { return rescuing_; }
  bool rescuing(Priority priority) const { return rescuing_ && rescued_ == priority; }
  // True for a class above the one that is rescued.
  bool pauses(Priority priority) const { return rescuing_ && priority < rescued_; }

 private:
  void End(uint64_t now_ns) {
    rescuing_ = false;
    next_ns_ = now_ns + (now_ns - since_ns_) * (kPauseShare - 1);
  }

  std::array<uint64_t, kPriorities> got_on_ns_ = {};
  bool rescuing_ = false;
  Priority rescued_ = Priority::kLow;
  uint64_t since_ns_ = 0;
  uint64_t next_ns_ = 0;
};

}  // namespace gpuloom::arbiter
