// SPDX-License-Identifier: Apache-2.0
// A trace of a tenant's own work (docs/tracing.md), since 1.4. On the allocation's socket, instead
// of the handshake (session.h):
//
//   tenant → scheduler   a Hello with kTraceMagic and trace_ms
//   scheduler → tenant   TraceAnswer: when that time is over, or at once for a refusal
//                        after an acceptance the TraceHeader, the records and the names (trace_region.h), as many bytes of
//                        each as TraceAnswer says, in messages of at most kTraceChunkBytes; then the scheduler disconnects
//
// A tenant that disconnects or sends anything more gets nothing. Records and the header's counts
// cover the requester's allocation only. Older schedulers disconnect without an answer.
#pragma once

#include <cstdint>

#include "proto/wire/session.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::wire {

inline constexpr uint32_t kTraceMagic = 0x63617274;  // "trac"

inline constexpr uint32_t kMaxOwnTraceMs = 60'000;
// 7 MiB of records. Where CUPTI records, ten seconds of a program that launches 13,000 kernels a
// second.
inline constexpr uint64_t kOwnTraceRecords = 128u << 10;
inline constexpr uint32_t kTraceChunkBytes = 32u << 10;
// Further sessions are sent without a name, so that a process that opens session after session
// takes no memory.
inline constexpr uint32_t kMaxTraceSessionNames = 256;

struct TraceSessionName {
  uint64_t session_id;
  int32_t pid;  // in the requester's pid namespace; 0: of another
  uint32_t unused;
};

struct TraceAnswer {
  uint32_t magic;  // kTraceMagic
  uint16_t major;  // the server's own
  uint16_t minor;
  Admission admission;
  uint32_t session_count;
  char message[256];  // NUL-terminated text for people, when not accepted
  // What follows, when accepted. Records of a newer server are longer: what a reader does not know
  // is at their end.
  uint32_t header_bytes;
  uint32_t record_bytes;  // of each
  uint64_t records;
  uint64_t name_bytes;
  uint8_t gpu_uuid[16];
  TraceSessionName sessions[kMaxTraceSessionNames];  // those that the records may name
};
static_assert(WireStruct<TraceSessionName> && WireStruct<TraceAnswer>);

}  // namespace gpuloom::wire
