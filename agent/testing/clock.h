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
  Time Wall() override {
    const MutexLock lock(mutex_);
    return now_ + wall_ahead_;
  }
  void SleepFor(Duration duration) override { Advance(duration); }
  void Advance(Duration duration) {
    const MutexLock lock(mutex_);
    now_ += duration;
  }
  // As if someone set the machine's clock.
  void StepWall(Duration step) {
    const MutexLock lock(mutex_);
    wall_ahead_ += step;
  }

 private:
  Mutex mutex_;
  Time now_ GPULOOM_GUARDED_BY(mutex_) = Time(std::chrono::seconds(1'700'000'000));
  Duration wall_ahead_ GPULOOM_GUARDED_BY(mutex_){};
};

}  // namespace gpuloom
