// Streams: handles, the legacy and the per-thread default streams, and the rules of who waits for
// whom. Ids are indices of the completion table; an id is used again only when its work is done.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"
#include "shim/thread_state.h"

namespace gpuloom {

struct Stream {
  std::atomic<uint32_t> alive;
  uint32_t flags;  // CU_STREAM_*
  int32_t priority;
  uint32_t unused;
  uint64_t serial;  // cuStreamGetId: never used twice
};

// Which default stream a null handle means: the plain functions use the legacy one, the _ptsz and
// _ptds ones the thread's own.
enum class DefaultStream : bool { kLegacy, kPerThread };

// The id for a handle a program passes. May make the thread's own stream, with a round trip.
[[nodiscard]] CUresult FindStream(CUstream handle, DefaultStream null_means, wire::StreamId* id);

// Does the stream's work go before what the legacy stream does next?
bool BlocksLegacy(wire::StreamId id);

// Until the work queued so far on the stream is done; for the legacy stream that includes the
// blocking streams, whose earlier work its barrier waits for.
[[nodiscard]] CUresult SynchronizeStream(wire::StreamId id);

// Its work and the legacy stream's wait for each other.
[[nodiscard]] bool IsBlocking(wire::StreamId id);

// The thread ends: its own stream may go. No error is possible.
void ReleaseThreadStream(ThreadState* thread);

// A new stream with this id: it has no attributes yet (stream_attribute.cc).
void ResetStreamAttributes(wire::StreamId id);
// Its priority as made; 0 of the default streams.
int PriorityOf(wire::StreamId id);

// For the reset of the context.
void ReleaseAllStreams();

}  // namespace gpuloom
