// SPDX-License-Identifier: Apache-2.0
// One session's scheduling state: what it may submit, has queued and has used, by engine (time_sharing.h). Plain data;
// owned by the session; ring thread only.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "agent/arbiter/domain_arbiter.h"
#include "agent/arbiter/stall.h"
#include "proto/control/messages.h"

namespace gpuloom::executor {

struct Share {
  // What it may submit under the present order.
  struct Room {
    bool open = false;
    bool idle_streams = false;  // only to streams that have nothing at the device
    uint64_t budget_ns = 0;
    arbiter::Work submitted;

    bool IsOpen(bool stream_at_device) const {
      return open && !IsFull() && !(idle_streams && stream_at_device);
    }
    void Add(uint64_t predicted_ns) {
      ++submitted.pieces;
      submitted.predicted_ns += predicted_ns;
    }
    // The first piece always fits.
    bool IsFull() const { return submitted.pieces != 0 && submitted.predicted_ns >= budget_ns; }
    bool Fits(uint64_t predicted_ns) const {
      return submitted.pieces == 0 ||
             predicted_ns <= budget_ns - std::min(budget_ns, submitted.predicted_ns);
    }
  };

  arbiter::SessionId session{};
  arbiter::AllocationId allocation{};
  uint64_t session_id = 0;     // the scheduler's
  uint64_t allocation_id = 0;  // the scheduler's
  bool limited = false;
  std::array<Room, arbiter::kEngines> rooms;
  std::array<arbiter::Work, arbiter::kEngines> queued;  // as the arbiter knows it
  std::array<uint32_t, arbiter::kEngines> heads = {};   // streams whose oldest mark is the engine's
  std::array<uint64_t, arbiter::kEngines> used_ns = {};
  uint32_t clears_waiting = 0;     // memory to clear (memory/clears.h)
  uint32_t clears_at_device = 0;   // pieces of it
  uint64_t submitted_kernels = 0;  // commands for the kernels' engine
  // What Turns has noted of these, and of used_ns.
  uint64_t noted_kernels = 0;
  uint64_t noted_ns = 0;
  arbiter::Stall stall;  // when SubmitToIdleStreams may go on
  control::KernelTerms kernels{};
  // For how long the finished work of the kernels' engine was at the head of its stream, by LevelOf
  // its priority.
  std::array<uint64_t, 8> ended_ns = {};
  control::WorkCounts counts{};  // for the scheduler
  std::array<arbiter::Waits, arbiter::kEngines> waits_counted =
      {};  // the part of these in `counts`

  // CUDA's priorities: 0 is the lowest, negative ones are higher.
  static uint32_t LevelOf(int cuda_priority) {
    return static_cast<uint32_t>(std::clamp(-cuda_priority, 0, 7));
  }

  Room& room(arbiter::Engine engine) { return rooms[static_cast<size_t>(engine)]; }
  const Room& room(arbiter::Engine engine) const { return rooms[static_cast<size_t>(engine)]; }
};

}  // namespace gpuloom::executor
