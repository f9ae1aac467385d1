// SPDX-License-Identifier: Apache-2.0
// Time as the agent sees it: it never runs backwards or leaps (steady_clock.h), because times are stored with allocations
// across restarts. Whatever shows such a time to people or programs shows Shown(time), which is wall time. Injected, so
// that tests of back-off, retries and garbage collection need not wait.
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
  // The machine's wall time, which may be set at any moment. Only for WallAhead.
  virtual Time Wall() { return Now(); }
  virtual void SleepFor(Duration duration) = 0;

  // How far wall time is ahead of Now, or behind it. In whole seconds, so that the time that is shown for something stays the
  // same while the machine's clock is only adjusted.
  Duration WallAhead() { return std::chrono::round<std::chrono::seconds>(Wall() - Now()); }
  // A time of this clock as wall time: as long ago as it was.
  Time Shown(Time time) { return time + WallAhead(); }
};

}  // namespace gpuloom
