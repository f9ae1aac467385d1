// SPDX-License-Identifier: Apache-2.0
// The memory that an executor writes its part of a trace into (docs/tracing.md): a header, records,
// names. Made by the scheduler for one executor and one trace, sealed. In an operator's trace the
// scheduler never reads it; the operator's command maps it read-only and validates everything in
// it. A tenant is sent a copy (trace.h).
//
//   [TraceHeader][kTraceRecords × TraceRecord][kTraceNameBytes of names, each ended by a NUL]
//
// One writer, the executor. Nothing is overwritten: what has no room is dropped and counted.
// `records` and `name_bytes` are stored (release) behind what they count, so a reader (acquire)
// sees whole records at any time. Zeros are a valid beginning. Grows at the end of a struct only,
// as messages do.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

// Ten seconds of a program that launches 50,000 kernels a second; 28 MiB, of which only what is
// written is taken.
inline constexpr uint64_t kTraceRecords = 512u << 10;
// Room for the names of some thousand kernels.
inline constexpr uint64_t kTraceNameBytes = 1u << 20;
// A longer name is cut.
inline constexpr size_t kTraceLongestName = 1023;

enum class TraceSource : uint32_t {
  kNone,   // nothing was recorded yet
  kOwn,    // the executor's own marks: groups of commands, whose beginnings are estimated
  kCupti,  // NVIDIA's activity records: each kernel and copy, timed by the device
};

struct TraceHeader {
  uint64_t records;
  uint64_t name_bytes;
  uint64_t dropped;     // records that had no room
  uint64_t lost;        // records for which CUPTI reports that it had no room
  uint64_t incomplete;  // records without times: the device had no room, or was not done at the end
  uint64_t begin_ns;    // CLOCK_MONOTONIC, as all times here
  uint64_t end_ns;      // 0: it still records
  uint32_t source;      // TraceSource
  uint32_t unused;
  char source_reason[256];  // why it is not CUPTI
};

enum class TraceKind : uint32_t {
  kKernel,
  kCopyToDevice,
  kCopyFromDevice,
  kCopyOnDevice,
  kFill,
  kGraph,  // a program's graph as a whole
  kOther,
};
inline constexpr uint32_t kTraceKinds = 7;

// The session_id of a record of the executor's own work, such as clearing memory.
inline constexpr uint64_t kTraceOfExecutor = UINT64_MAX;

struct TraceRecord {
  uint64_t session_id;  // 0: not known
  uint64_t begin_ns;
  uint64_t end_ns;
  uint64_t bytes;   // of copies and fills
  uint32_t stream;  // the session's stream id; for an unknown session, the source's
  uint32_t name;    // index among the names; 0: none
  uint32_t
      correlation;    // the same for all records of one launch of a graph; 0: not part of a graph
  uint32_t kind;      // TraceKind
  uint32_t commands;  // how many commands it stands for
  uint32_t unused;
};

static_assert(WireStruct<TraceHeader> && WireStruct<TraceRecord>);

inline constexpr size_t kTraceRecordsAt = 4096;
inline constexpr size_t kTraceNamesAt = kTraceRecordsAt + kTraceRecords * sizeof(TraceRecord);
inline constexpr size_t kTraceRegionBytes = kTraceNamesAt + kTraceNameBytes;
static_assert(sizeof(TraceHeader) <= kTraceRecordsAt);

}  // namespace gpuloom::wire
