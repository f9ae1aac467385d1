// SPDX-License-Identifier: Apache-2.0
// How long to wait before the next start: the pause doubles from kFirst to kLongest, and begins again at kFirst after a
// run of at least kStable. A value, one for each GPU, owned by the supervisor; time is an argument. Used from one
// thread.
#pragma once

#include <algorithm>

#include "agent/clock.h"

namespace gpuloom {

class Backoff {
 public:
  static constexpr Clock::Duration kFirst = std::chrono::milliseconds(500);
  // Short enough that a repaired node serves pods within half a minute.
  static constexpr Clock::Duration kLongest = std::chrono::seconds(30);
  // A process that ran this long did not fail to start.
  static constexpr Clock::Duration kStable = std::chrono::seconds(60);

  void Started(Clock::Time now) { started_ = now; }
  void Failed(Clock::Time now) {
    pause_ = pause_ == Clock::Duration::zero() || now - started_ >= kStable
                 ? kFirst
                 : std::min(pause_ * 2, kLongest);
    next_ = now + pause_;
  }
  bool MayStart(Clock::Time now) const { return now >= next_; }
  Clock::Duration pause() const { return pause_; }

 private:
  Clock::Time started_;
  Clock::Time next_;
  Clock::Duration pause_ = Clock::Duration::zero();
};

}  // namespace gpuloom
