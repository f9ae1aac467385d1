// SPDX-License-Identifier: Apache-2.0
// For tests: time that passes only when someone sleeps or Advance is called. Safe from any thread.
#pragma once

#include "agent/clock.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class TestingClock : public Clock {
 public:
  Time Now() override {
    const MutexLock lock(mutex_);
    return now_;
  }
  void SleepFor(Duration duration) override { Advance(duration); }
  void Advance(Duration duration) {
    const MutexLock lock(mutex_);
    now_ += duration;
  }

 private:
  Mutex mutex_;
  Time now_ GPULOOM_GUARDED_BY(mutex_) = Time(std::chrono::seconds(1'700'000'000));
};

}  // namespace gpuloom
