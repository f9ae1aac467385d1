// SPDX-License-Identifier: Apache-2.0
// Time as the agent sees it: about wall time, but it only runs forward (steady_clock.h), because it is
// kept with allocations over restarts. Injected, so that back-off, retries and garbage collection are tested without
// waiting. Implementations are safe from any thread; main owns the one that is real.
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
