// SPDX-License-Identifier: Apache-2.0
// Time as the agent sees it: close to wall time, but it never runs backwards (steady_clock.h), because times are stored
// with allocations across restarts. Injected, so that tests of back-off, retries and garbage collection need not wait.
// Implementations are safe from any thread. main owns the real one, which outlives all its users.
#pragma once

#include <chrono>

namespace gpuloom {

class Clock {
 public:
  using Time = std::chrono::system_clock::time_point;
  using Duration = std::chrono::milliseconds;

  virtual ~Clock() = default;
  virtual Time Now() = 0;
  virtual void SleepFor(Duration duration) = 0;
};

}  // namespace gpuloom
