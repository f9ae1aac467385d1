// SPDX-License-Identifier: Apache-2.0
// Events: which ticket of which stream the latest record is. Queries and waits read completion
// numbers; only elapsed times are asked of the executor.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"
#include "proto/wire/memory_commands.h"

namespace gpuloom {

struct Event {
  std::atomic<uint32_t> alive;
  uint32_t flags;  // CU_EVENT_*
  // Other processes may record it: what it stands at is asked of the executor.
  std::atomic<bool> shared;
  // Stream id in the upper 12 bits, ticket below, in one word so that a thread that queries never
  // sees half of another's record; 0: never recorded.
  std::atomic<uint64_t> record;
};
static_assert(wire::kMaxStreams <= 1u << 12);

// Null when the handle is none of ours.
const Event* FindEvent(CUevent handle);
wire::EventId IdOf(const Event* event);

// The event was recorded by a command that says so itself.
void NoteRecord(CUevent handle, wire::StreamId stream, wire::Ticket ticket);

// cuStreamWaitEvent behind its checks of the stream.
[[nodiscard]] CUresult MakeStreamWait(wire::StreamId stream, CUevent handle);

// cuEventRecord behind its checks of the stream.
[[nodiscard]] CUresult RecordEvent(CUevent handle, wire::StreamId stream);
// May a launch record it? CUDA wants one without timing.
[[nodiscard]] CUresult CheckLaunchEvent(CUevent handle);

// An event of another process (ipc.cc).
[[nodiscard]] CUresult OpenEvent(const wire::Token& token, CUevent* handle);
[[nodiscard]] CUresult ShareEvent(CUevent handle, wire::Token* token);

// An event without times that the program does not see.
[[nodiscard]] CUresult MakeOwnEvent(CUevent* handle);

// For the reset of the context.
void ReleaseAllEvents();

}  // namespace gpuloom
