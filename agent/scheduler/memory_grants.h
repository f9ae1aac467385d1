// SPDX-License-Identifier: Apache-2.0
// Device memory of sessions: granted, charged and returned, and requests that wait until others return theirs
// (docs/design/memory.md). What an executor says is untrusted: it may name only its own sessions and their own memory.
// A part of the scheduler; its thread only. `spare_executors` and `reclaims` outlive it. Owns the physical memory, and
// returns to the driver what is left of it at its end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/memory_book.h"
#include "agent/scheduler/memory_queue.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class MemoryReclaims;
class SpareExecutors;

class MemoryGrants : public Part {
 public:
  MemoryGrants(SchedulerPort* port, SpareExecutors* spare_executors, MemoryReclaims* reclaims)
      : Part(port),
        spare_executors_(spare_executors),
        reclaims_(reclaims),
        memory_(port->device()) {}
  ~MemoryGrants();

  void On(Executor* executor, const control::MemoryRequest& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryCharge& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryReturn& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryTransfer& message, control::Incoming& in);
  void On(Executor* executor, const control::MemoryInfoRequest& message, control::Incoming& in);

  // Call when memory has come back to the device.
  void NoteRoom();
  // Answers the session's waiting requests. Call when it ends.
  void StopWaiting(uint64_t session_id);
  // Takes back all that the session has. Call when nothing of it is mapped or at the device any more.
  void ReleaseAll(Session* session);
  // Call when the allocation's `memory_wait` has changed.
  void UpdateWait(const Allocation& allocation);
  size_t WaitingOf(const Allocation& allocation) const { return waiting_.CountOf(&allocation); }

 private:
  // Answers a memory request. The session is nullptr if there is none that may have memory. Returns false if the device
  // had no room; on the last try it answers in any case.
  using OnRoom = std::function<bool(Executor*, Session*, bool last_try)>;
  // Calls `then`. Where the quota or the device has no room, it first reclaims the memory that sessions keep without
  // using it, or reclaims that memory and calls `then` again.
  void WithRoom(Executor* executor, uint64_t session_id_untrusted, uint64_t size_bytes,
                const OnRoom& then);
  [[nodiscard]] bool Grant(Executor* executor, Session* session,
                           const control::MemoryRequest& message, uint32_t request, bool last_try);
  // Whether the session may wait for others' memory: its policy decides.
  bool MayWait(const Session& session, uint64_t size_bytes) const;
  void Wait(const Session& session, const control::MemoryRequest& message, uint32_t request);
  // Returns false if the device has no room; with `last_try` the request is answered in any case.
  bool GrantWaiting(const MemoryQueue::Request& waiting, bool last_try);
  // Tries the waiting requests, and answers those whose time is over.
  void Offer();
  void ArmWaitingTimer();

  SpareExecutors* const spare_executors_;
  MemoryReclaims* const reclaims_;
  MemoryBook memory_;
  MemoryQueue waiting_;
  Timer waiting_timer_;  // its next moment
  Timer offer_timer_;    // memory has come back
  EventLoop::Clock::time_point last_offer_{};
  Timer spare_timer_;  // when a spare piece is made, and when it is given up
};

}  // namespace gpuloom::scheduler
