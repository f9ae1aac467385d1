// SPDX-License-Identifier: Apache-2.0
// An operator's trace (docs/tracing.md), as the scheduler holds it: which executors record, into which memory, and what
// their sessions are charged meanwhile. Owned by OperatorTraces; plain state, on the scheduler's thread. The scheduler creates the memory, passes it on and never reads it.
//
//   recording ── EndTrace, or the limit ──→ stopped ── EndTrace, and all have written or patience is over ──→ deleted
//
// Deleted at once, without an answer, when the controller that began it disconnects.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::scheduler {

// Each part may take wire::kTraceRegionBytes of memory.
inline constexpr size_t kMaxTraceParts = 32;
// A restarted executor is recorded once more, not again and again: a domain whose executors keep
// ending cannot fill the memory.
inline constexpr size_t kMaxTracePartsOfDomain = 2;
// Further sessions are recorded without a name, so that a tenant that opens session after session
// takes no memory.
inline constexpr size_t kMaxTraceSessions = 2048;

struct Controller;

struct Trace {
  struct Part {
    std::string domain;
    channel::UniqueFd region;
    bool records = false;
    bool stopped = false;
    bool written = false;
    bool lost = false;
    std::string message;
  };
  struct Traced {
    uint64_t executor_id;
    std::shared_ptr<const Allocation> allocation;
    control::TimeUsage before{};  // what it had been charged when recording began
    control::TimeUsage time{};    // what it has been charged since then
    bool counted = false;         // `time` is final
  };

  uint64_t id = 0;
  const Controller* controller = nullptr;  // the one that began it
  EventLoop::Clock::time_point began;
  bool stopped = false;
  bool begins = true;  // BeginTrace is not answered yet
  uint32_t begin_request = 0;
  bool ends = false;  // EndTrace has come
  uint32_t end_request = 0;
  size_t left_out = 0;             // executors beyond the limits
  std::map<uint64_t, Part> parts;  // by executor
  std::map<uint64_t, Traced> sessions;
  Timer limit;
  Timer patience;
};

}  // namespace gpuloom::scheduler
