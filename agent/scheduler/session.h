// SPDX-License-Identifier: Apache-2.0
// A tenant process's session as the scheduler holds it: from its accepted Hello until its executor holds nothing of it.
// Owned by the registry; plain state, advanced by Sessions on the scheduler's thread.
//
//            executor ready              SessionReady, Welcome sent
//   kWaiting ───────────────→ kAdding ──────────────────────────→ kLive
//      │ hang-up                 │ hang-up, refused                 │ hang-up, allocation removed
//      ↓                         ↓                                  ↓
//    gone                     kEnding ──── SessionEnded, or the executor is reaped ────→ gone
//
// In kEnding the usage stays charged and the address ranges stay taken: the executor may still have
// them mapped. The host range stays taken until ArenaReturned (Executor::arenas).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/memory_book.h"
#include "proto/channel/region.h"
#include "proto/channel/unique_fd.h"
#include "proto/wire/session.h"

namespace gpuloom::scheduler {

class Executor;

// The descriptors of a session's regions, until they are passed on.
struct SessionRegions {
  channel::UniqueFd command;
  channel::UniqueFd completion;
  channel::UniqueFd arena;
  channel::UniqueFd tenant_doorbell;
  channel::UniqueFd executor_doorbell;
};

// More processes than any container of one pod has been seen to use a GPU with.
inline constexpr uint32_t kMaxSessionsPerAllocation = 64;

struct Session {
  enum class State { kWaiting, kAdding, kLive, kEnding };

  uint64_t id = 0;
  State state = State::kWaiting;
  std::shared_ptr<Allocation> allocation;
  Executor* executor = nullptr;
  int tenant_pid = 0;  // for logs only; 0: not known
  // The pid it reports (wire::Hello): passed on to its own allocation only, otherwise meaningless.
  int32_t own_pid_untrusted = 0;
  uint64_t pid_namespace_untrusted = 0;
  wire::SessionToken token{};  // sent to the tenant in Welcome

  channel::UniqueFd tenant;
  Watch tenant_watch;
  Timer deadline;

  SessionRegions regions;
  channel::Range device_range;
  uint64_t device_own_bytes = 0;  // the executor's first part of device_range, see AddSession
  channel::Range host_range;
  uint64_t pinned_limit_bytes = 0;
  bool waits_for_others = false;  // its end waits for other sessions; has been logged
  bool arena_returned = true;     // false from AddSession to ArenaReturned
  SessionMemory memory;
  uint64_t kernels_launched = 0;
  // Device time in `time` stays within the executor's part of it; what was reported beyond that waits in `reported`.
  control::TimeUsage time{};
  control::TimeUsage reported{};
  control::WorkCounts work{};
  bool faulted = false;       // counted in Allocation::faults
  bool held = false;          // its executor reports that nothing of it is at the device
  uint32_t hold_request = 0;  // of the latest HoldSession; 0: of AddSession
  // The latest kernel that ran for long.
  struct Kernel {
    bool any = false;
    uint64_t number = 0;
    uint64_t began_part_ns = 0;  // its executor's part of the device's time when it began
    bool counted = false;        // in Allocation::long_kernels
  };
  Kernel kernel;

  std::string Label() const {
    return "session " + std::to_string(id) + " (" + allocation->Label() +
           (tenant_pid > 0 ? ", " + ProcessText(tenant_pid) : "") + ")";
  }
};

}  // namespace gpuloom::scheduler
