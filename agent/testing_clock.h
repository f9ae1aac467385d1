// For tests: time that passes only when someone sleeps or Advance is called. Safe from any thread.
#pragma once

#include <mutex>

#include "agent/clock.h"

namespace gpuloom {

class TestingClock : public Clock {
 public:
  Time Now() override {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void SleepFor(Duration duration) override { Advance(duration); }
  void Advance(Duration duration) {
    const std::lock_guard lock(mutex_);
    now_ += duration;
  }

 private:
  std::mutex mutex_;
  Time now_ = Time(std::chrono::seconds(1'700'000'000));
};

}  // namespace gpuloom
