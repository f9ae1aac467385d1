// SPDX-License-Identifier: Apache-2.0
// How much of the driver's queues the work of all sessions occupies, and who holds the hardware's (hardware_queues.h).
// Submitting to a full queue blocks the calling thread (1,019 launches, measured), and streams beyond the hardware's
// queues share one: a queue whose head waits fills up with everything behind it, from all its streams. The
// ring thread must not block there: the head may be waiting for it (docs/design/running-graphs.md).
//
// Owned by the loop; updated by the sessions' stream sets. Ring thread only.
#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/executor/device/hardware_queues.h"
#include "agent/executor/device/timing_events.h"

namespace gpuloom::executor {

class DriverRoom {
 public:
  explicit DriverRoom(uint32_t hardware_queues = kHardwareQueues) : hardware_(hardware_queues) {}

  // A command takes one place in a queue; marks and waits for other streams take additional places.
  // With all the exceptions below, what is at CUDA stays under what a single queue holds.
  static constexpr uint32_t kPlaces = 256;

  // Returns true if a session that has `mine` places may submit more to a stream that has `in_stream` places. No
  // session can take all places: each active session has its own share. An empty stream may submit its first command
  // even if its session's other streams are full, because they may be waiting for it.
  bool Has(uint32_t mine, uint32_t in_stream) const {
    return taken_ < kPlaces || mine < kPlaces / sharers_ ||
           (in_stream == 0 && taken_ < 2 * kPlaces);
  }
  void Take(uint32_t places) { taken_ += places; }
  void Give(uint32_t places) { taken_ -= places; }

  void SetSharers(uint32_t sessions) { sharers_ = std::clamp(sessions, 1u, kPlaces); }
  uint32_t taken() const { return taken_; }

  HardwareQueues& hardware() { return hardware_; }
  const HardwareQueues& hardware() const { return hardware_; }
  TimingEvents& timing() { return timing_; }

 private:
  HardwareQueues hardware_;
  TimingEvents timing_;
  uint32_t taken_ = 0;
  uint32_t sharers_ = 1;  // active sessions
};

}  // namespace gpuloom::executor
