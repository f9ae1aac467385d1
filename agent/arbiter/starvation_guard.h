// SPDX-License-Identifier: Apache-2.0
// Ensures that a lower class makes progress although a higher one always wants the device. A class that has work and
// has made no progress for a bound (its policy's, divided by the number of its allocations with work) is *rescued*: the
// higher classes pause until it has. So each of n allocations of equal weight makes progress once within the bound,
// however many processes each has.
//
// Pauses take at most one part in kPauseShare of the time: the next one does not begin before kPauseShare - 1 times the
// length of the last one has passed. So with many allocations, or long kernels of theirs, the bound for one of them
// becomes n x kPauseShare x the length of a pause. A pause lasts until what higher classes have in flight is done and
// some work of the lower class has begun; it does not wait for the end of that work.
//
// If several classes are due, the one goes first that has waited for longest, measured by its own bound: pauses that are
// all taken are divided by the number of allocations, and no class keeps another from its rescue.
//
// Plain value, a member of its arbiter, no clock; one thread. Nanoseconds. Nothing fails.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "agent/arbiter/priority.h"

namespace gpuloom::arbiter {

class StarvationGuard {
 public:
  static constexpr uint64_t kPauseShare = 10;

  // The class made progress (some of its work ran), or has just got work.
  void NoteProgress(Priority priority, uint64_t now_ns) {
    last_progress_ns_[Index(priority)] = now_ns;
    if (rescuing_ && rescued_ == priority) End(now_ns);
  }
  void HasNoWork(Priority priority, uint64_t now_ns) { NoteProgress(priority, now_ns); }

  // When a class with that many allocations waiting behind a higher one is to be rescued. bound_ns 0: its policy lets it
  // starve.
  uint64_t DueAtNs(Priority priority, uint64_t allocations, uint64_t bound_ns) const {
    if (bound_ns == 0 || allocations == 0) return UINT64_MAX;
    return std::max(last_progress_ns_[Index(priority)] + bound_ns / allocations, next_ns_);
  }

  // What waits of a class behind a higher one, and its policy's bound, as in DueAtNs.
  struct Waiting {
    uint64_t allocations;
    uint64_t bound_ns;
  };
  // Rescues a class down to `lowest`, if one is due and none is being rescued: of several, the one that has waited for
  // longest. `waiting(priority)` returns an optional Waiting; nullopt: nothing of the class waits behind a higher one.
  template <typename F>
  void BeginDue(Priority lowest, uint64_t now_ns, F waiting) {
    if (rescuing_) return;
    std::optional<Priority> due;
    double longest = 0;
    for (size_t i = Index(lowest); i != 0; --i) {
      const Priority priority = kAllPriorities[i];
      const std::optional<Waiting> its = waiting(priority);
      if (!its || now_ns < DueAtNs(priority, its->allocations, its->bound_ns)) continue;
      const double waited = Waited(priority, *its, now_ns);
      if (due && waited <= longest) continue;
      due = priority;
      longest = waited;
    }
    if (due) Begin(*due, now_ns);
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
  // In units of the bound for each of its allocations: from 1 on it is due, but for the last pause.
  double Waited(Priority priority, const Waiting& its, uint64_t now_ns) const {
    return static_cast<double>((now_ns - last_progress_ns_[Index(priority)]) * its.allocations) /
           static_cast<double>(its.bound_ns);
  }

  void End(uint64_t now_ns) {
    rescuing_ = false;
    next_ns_ = now_ns + (now_ns - since_ns_) * (kPauseShare - 1);
  }

  std::array<uint64_t, kPriorities> last_progress_ns_ = {};
  bool rescuing_ = false;
  Priority rescued_ = Priority::kLow;
  uint64_t since_ns_ = 0;
  uint64_t next_ns_ = 0;
};

}  // namespace gpuloom::arbiter
