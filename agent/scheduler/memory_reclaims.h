// SPDX-License-Identifier: Apache-2.0
// Rounds in which sessions are asked to return the memory that they have freed and keep (docs/design/memory.md): those
// of one allocation when its quota is full, all when the device is. An executor is believed for its own sessions only.
// A part of the scheduler; its thread only. What `then` uses must live until it is called, which may be before Reclaim
// returns; it cannot be taken back.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class MemoryReclaims : public Part {
 public:
  explicit MemoryReclaims(SchedulerPort* port) : Part(port) {}

  // Asks the sessions of an allocation (nullptr: all sessions) to return the memory that they keep without using it.
  // Calls `then` when they have returned it, are gone, or take too long.
  void Reclaim(const Allocation* allocation, std::chrono::milliseconds limit,
               std::function<void()> then);
  void On(Executor* executor, const control::MemoryReclaimed& message, control::Incoming& in);
  // Call when a session has ended and what it had is returned: nobody waits for it any more.
  void Forget(uint64_t session_id);

  // How many calls of Reclaim wait.
  size_t waiting_count() const;

 private:
  // One round at a time per allocation, and one for all of them. Requests made during a round wait for the next one, so
  // that no executor can have others asked as often as it likes.
  struct Round {
    const Allocation* of = nullptr;  // nullptr: all; only compared
    std::set<uint64_t> sessions;     // that have not answered yet
    std::vector<std::function<void()>> then;
    std::vector<std::function<void()>> next;
    EventLoop::Clock::time_point began;
    std::chrono::milliseconds limit;
    Timer timer;  // its deadline; afterwards, when the next round may begin
  };

  void Begin(const Allocation* allocation, std::chrono::milliseconds limit,
             std::vector<std::function<void()>> then);
  void NoteReclaimed(uint64_t round_id, uint64_t session_id);
  void EndRound(uint64_t round_id);
  void BeginNext(uint64_t round_id);

  std::map<uint64_t, Round> rounds_;
};

}  // namespace gpuloom::scheduler
