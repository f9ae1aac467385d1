// SPDX-License-Identifier: Apache-2.0
// A trace that a tenant has requested of its own work (proto/wire/trace.h), as the scheduler holds it: one at a time
// for each executor. Owned by OwnTraces; plain state, on the scheduler's thread. The
// executor records that allocation's work only; the scheduler copies the records to the tenant, which gets no
// descriptor of the memory and so cannot keep it.
//
//   kBegins ─ it records ─→ kRecords ─ time is over ─→ kWrites ─ all is written ─→ kSends ─ all is sent ─→ deleted
//
// Deleted in any state when the tenant disconnects or sends anything, its executor ends, its allocation is removed or
// loses the permission, or the next step takes too long. Before kSends it is also deleted when the operator begins a
// trace.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"
#include "proto/wire/trace.h"

namespace gpuloom::scheduler {

// Each takes 8 MiB of memory at most.
inline constexpr size_t kMaxOwnTraces = 16;
// The pause before the same allocation may trace again, or the length of its last trace if that was
// longer. So other allocations of its trust domain can trace, and the executor records at most half
// of the time.
inline constexpr std::chrono::seconds kOwnTracePause{10};

struct OwnTrace {
  enum class State { kBegins, kRecords, kWrites, kSends };
  // A piece of the region that is to be sent.
  struct Piece {
    uint64_t at;
    uint64_t bytes;
  };

  uint64_t id = 0;
  State state = State::kBegins;
  std::shared_ptr<Allocation> allocation;
  uint64_t executor_id = 0;
  std::chrono::milliseconds time{0};
  EventLoop::Clock::time_point began;
  uint64_t pid_namespace_untrusted = 0;  // the requester's
  std::vector<wire::TraceSessionName> sessions;
  channel::UniqueFd region;
  std::array<Piece, 3> pieces{};  // from kSends on

  channel::UniqueFd tenant;
  Watch watch;
  Timer timer;  // until the next step
};

}  // namespace gpuloom::scheduler
