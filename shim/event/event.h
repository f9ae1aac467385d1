// SPDX-License-Identifier: Apache-2.0
// Events: the stream and ticket of the latest record. Queries and waits read completion numbers; only elapsed times,
// and the state of events that other processes may record, are asked of the executor. One table per process owns the
// events. Safe from any thread. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/event_commands.h"
#include "proto/wire/handles.h"

namespace gpuloom {

struct Event {
  std::atomic<uint32_t> alive;
  uint32_t flags;  // CU_EVENT_*
  // True: other processes may record it, so the executor is asked for its state.
  std::atomic<bool> shared;
  // Stream id in the upper 12 bits, ticket below, in one word so that a querying thread never sees
  // half of another thread's record; 0: never recorded.
  std::atomic<uint64_t> record;
};
static_assert(wire::kMaxStreams <= 1u << 12);

// Null if the handle is not one of ours.
const Event* FindEvent(CUevent handle);
wire::EventId IdOf(const Event* event);

// The event was recorded by a command that does so itself.
void NoteRecord(CUevent handle, wire::StreamId stream, wire::Ticket ticket);

// cuStreamWaitEvent after its checks of the stream.
[[nodiscard]] CUresult MakeStreamWait(wire::StreamId stream, CUevent handle);

// cuEventRecord after its checks of the stream.
[[nodiscard]] CUresult RecordEvent(CUevent handle, wire::StreamId stream);
// Whether a launch may record it: CUDA requires one without timing.
[[nodiscard]] CUresult CheckLaunchEvent(CUevent handle);

// Opens an event of another process, and shares one with others (ipc.cc).
[[nodiscard]] CUresult OpenEvent(const wire::Token& token, CUevent* handle);
[[nodiscard]] CUresult ShareEvent(CUevent handle, wire::Token* token);

// An event without timing that the program does not see.
[[nodiscard]] CUresult MakeOwnEvent(CUevent* handle);

// For a reset of the context.
void ReleaseAllEvents();

}  // namespace gpuloom
