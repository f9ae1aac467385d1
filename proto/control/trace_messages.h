// SPDX-License-Identifier: Apache-2.0
// The messages about traces (docs/tracing.md), since 3.4. The rules are those of messages.h. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "proto/control/messages.h"

namespace gpuloom::control {

// Makes all executors, also those that start meanwhile, record what the device does, each into a region of its own
// (trace_region.h). There is one trace at a time. Recording ends with EndTrace, when this connection closes, and after
// `limit_ms`. Answered when all executors record, or after some seconds.
struct BeginTrace {
  static constexpr std::string_view kName = "BeginTrace";
  static constexpr Route kRoute = Route::kAgentAsks;
  uint32_t limit_ms;  // 1 to kMaxTraceMs
  uint32_t unused;
};
inline constexpr uint32_t kMaxTraceMs = 300'000;

// Ends the trace that this connection has begun. Answered when all has been written, by one TracePart for each
// executor, one TraceSession for each session that existed, then Answer.
struct EndTrace {
  static constexpr std::string_view kName = "EndTrace";
  static constexpr Route kRoute = Route::kAgentAsks;
};

enum class TraceEnd : uint32_t {
  kWhole,   // from the beginning, or the executor's, to the end
  kLost,    // the executor ended meanwhile: `message` says why
  kSilent,  // it did not report in time that all is written
};

// With the region, read-only. An executor has written its content, which is untrusted.
struct TracePart {
  static constexpr std::string_view kName = "TracePart";
  static constexpr Route kRoute = Route::kAnswers;
  static constexpr size_t kFds = 1;
  uint64_t executor_id;
  uint32_t end;  // TraceEnd
  uint32_t unused;
  Name trust_domain;
  char message[512];
};

// To whom a session's records belong, from the scheduler's own knowledge.
struct TraceSession {
  static constexpr std::string_view kName = "TraceSession";
  static constexpr Route kRoute = Route::kAnswers;
  uint64_t session_id;
  uint64_t executor_id;
  Label pod_namespace;
  Name pod;
  Label pod_uid;
  Label container;
  TimeUsage time;  // what it was charged, and how long it waited, while its executor recorded
};

// Scheduler: with a region of kTraceRegionBytes, writable. An earlier trace is forgotten.
struct StartTracing {
  static constexpr std::string_view kName = "StartTracing";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  static constexpr size_t kFds = 1;
  uint64_t trace_id;
};

// The same for the sessions of one allocation only, whose tenant receives the region's content: it must reveal nothing
// about others, not even a count. Since 3.6; an executor that does not know the message records nothing.
struct StartTracingOwn {
  static constexpr std::string_view kName = "StartTracingOwn";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  static constexpr size_t kFds = 1;
  uint64_t trace_id;
  uint64_t allocation_id;
  uint64_t most_records;
  uint32_t cupti;  // 1: CUPTI may record
  uint32_t unused;
};

struct StopTracing {
  static constexpr std::string_view kName = "StopTracing";
  static constexpr Route kRoute = Route::kSchedulerOrders;
  uint64_t trace_id;
};

enum class TraceStep : uint32_t {
  kRecords,  // records from now on; all sessions' counters have just been sent
  kStopped,  // records nothing that begins from now on; all counters have just been sent
  kWritten,  // the region does not change after this
};

// Executor: how far it is with a trace. Ignored for an unknown trace.
struct TraceProgress {
  static constexpr std::string_view kName = "TraceProgress";
  static constexpr Route kRoute = Route::kExecutorSays;
  uint64_t trace_id;
  uint32_t step;  // TraceStep
  uint32_t unused;
};

}  // namespace gpuloom::control
