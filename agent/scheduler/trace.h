// SPDX-License-Identifier: Apache-2.0
// The trace that somebody has asked for (docs/tracing.md), as the scheduler holds it: whose executors record, into which
// memory, and what their sessions are charged meanwhile. Plain state, moved along by trace_flow.cc. The scheduler makes the
// memory, hands it over and never looks into it.
//
//   recording ── EndTrace, the limit ──→ stopped ── all have written, or patience is over; asked for ──→ gone
//
// Gone at once, unanswered, when whoever asked hangs up.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "agent/scheduler/allocation.h"
#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

// Each may take control::kTraceRegionBytes of memory.
inline constexpr size_t kMaxTraceParts = 32;
// One that ends and starts again is followed once: a domain whose executors end without end fills no memory.
inline constexpr size_t kMaxTracePartsOfDomain = 2;
// Those who begin one session after the other during a trace are named no further.
inline constexpr size_t kMaxTraceSessions = 2048;

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
    control::TimeUsage time{};    // since then
    bool counted = false;         // that is final
  };

  uint64_t id = 0;
  uint64_t controller = 0;  // who asked
  EventLoop::Clock::time_point began;
  bool stopped = false;
  bool begins = true;  // BeginTrace is not answered yet
  uint32_t begin_request = 0;
  bool ends = false;  // EndTrace was said
  uint32_t end_request = 0;
  size_t left_out = 0;             // executors beyond the limits
  std::map<uint64_t, Part> parts;  // by executor
  std::map<uint64_t, Traced> sessions;
  Timer limit;
  Timer patience;
};

}  // namespace gpuloom::scheduler
