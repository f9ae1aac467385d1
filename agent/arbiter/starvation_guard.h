// SPDX-License-Identifier: Apache-2.0
// Ensures that a lower class makes progress although a higher one always wants the device. A class that has work and
// has made no progress for a bound (its policy's, divided by the number of its sessions with work) is *rescued*: the
// higher classes pause until it has. So each of n sessions of equal weight makes progress once within the bound.
//
// Pauses take at most one part in kPauseShare of the time: the next one does not begin before kPauseShare - 1 times the
// length of the last one has passed. So with many sessions, or long kernels of theirs, the bound for one of them
// becomes n x kPauseShare x the length of a pause. A pause lasts until what higher classes have in flight is done and
// some work of the lower class has begun; it does not wait for the end of that work.
//
// Plain value, no clock; one thread. Nanoseconds. Nothing fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/arbiter/priority.h"

namespace gpuloom::arbiter {

class StarvationGuard {
 public:
  static constexpr uint64_t kPauseShare = 10;

  // The class made progress (some of its work ran), or has just got work.
  void GotOn(Priority priority, uint64_t now_ns) {
    got_on_ns_[Index(priority)] = now_ns;
    if (rescuing_ && rescued_ == priority) End(now_ns);
  }
  void HasNoWork(Priority priority, uint64_t now_ns) { GotOn(priority, now_ns); }

  // When a class with that many sessions waiting behind a higher one is to be rescued. bound_ns 0: its policy lets it
  // starve.
  uint64_t DueAtNs(Priority priority, uint64_t sessions, uint64_t bound_ns) const {
    if (bound_ns == 0 || sessions == 0) return UINT64_MAX;
    return std::max(got_on_ns_[Index(priority)] + bound_ns / sessions, next_ns_);
  }

  void Begin(Priority priority, uint64_t now_ns) {
    rescuing_ = true;
    rescued_ = priority;
    since_ns_ = now_ns;
  }

  // The work for which the class was rescued ran on until this moment, though the pause had ended: it counts as if the
  // pause had lasted as long.
  void RanOn(uint64_t since_ns, uint64_t now_ns) {
    next_ns_ = std::max(next_ns_, now_ns + (now_ns - since_ns) * (kPauseShare - 1));
  }

  bool rescuing() const { return rescuing_; }
  bool rescuing(Priority priority) const { return rescuing_ && rescued_ == priority; }
  // True for a class above the rescued one.
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
