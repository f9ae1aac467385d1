// SPDX-License-Identifier: Apache-2.0
// Streams: handles, the legacy and the per-thread default streams, and the rules for which stream waits for which. Ids
// are indices into the completion table; an id is reused only once its work is done. One table per process owns the
// streams. Safe from any thread. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/libcuda/default_stream.h"
#include "proto/wire/green_context_commands.h"
#include "proto/wire/handles.h"
#include "shim/process/thread_state.h"

namespace gpuloom {

struct GreenContext;

enum class StreamUse : uint32_t {
  kNone,  // being created, or ending
  kProgram,
  kThread,  // some thread's own default stream
  kOwn,     // the shim's
  kOrphan,  // its green context is gone, and so is the executor's stream
};

struct Stream {
  std::atomic<uint32_t> alive;
  uint32_t flags;  // CU_STREAM_*
  int32_t priority;
  std::atomic<StreamUse> use;
  uint64_t serial;  // cuStreamGetId: never reused
};

// The id for a handle that a program passes. May create the thread's own stream, with a round trip.
[[nodiscard]] CUresult FindStream(CUstream handle, DefaultStream null_means, wire::StreamId* id);

// The stream as an object; null for the legacy stream, and for one that has been destroyed.
const Stream* StreamAt(wire::StreamId id);
CUcontext ContextOf(const Stream& stream);

// Whether the legacy stream's next work waits for this stream's work.
bool BlocksLegacy(wire::StreamId id);

// Waits until the work queued so far on the stream is done; for the legacy stream that includes the blocking streams,
// whose earlier work its barrier waits for.
[[nodiscard]] CUresult SynchronizeStream(wire::StreamId id);

// Waits for everything that a command added to the stream now would wait for: for a blocking stream that includes the
// legacy stream's work. Also returns what commands have failed with.
[[nodiscard]] CUresult SynchronizeForTurn(wire::StreamId id);
// An empty command that only marks its place in the stream.
[[nodiscard]] CUresult MarkStream(wire::StreamId id, wire::Ticket* ticket = nullptr);

// Call it when the thread ends: its own stream may be destroyed. Cannot fail.
void ReleaseThreadStream(ThreadState* thread);

// For a new stream with this id: it has no attributes yet (stream_attribute.cc).
void ResetStreamAttributes(wire::StreamId id);
// Its priority as created; 0 for the default streams.
int PriorityOf(wire::StreamId id);

// Whether what was queued so far is done.
[[nodiscard]] bool IsStreamIdle(wire::StreamId id);

// The streams that a context's work may be in, except the legacy one: those created in it and the threads' own; for
// the primary context also its green ones'. None of them ends while this lives, and one missed because it is being
// created has not been through OrderNewStream yet.
class StreamsOf {
 public:
  explicit StreamsOf(CUcontext context);
  ~StreamsOf();
  StreamsOf(const StreamsOf&) = delete;
  StreamsOf& operator=(const StreamsOf&) = delete;
  [[nodiscard]] bool Next(wire::StreamId* id);

 private:
  const CUcontext context_;
  const bool of_green_;
  uint32_t last_ = 0;
};

// A stream that the program does not see; ForgetAllContextOrders handles its loss in a context reset.
[[nodiscard]] CUresult MakeOwnStream(unsigned flags, wire::StreamId* id);
void EndOwnStream(wire::StreamId id);

// A stream in a green context, non-blocking like all of those.
[[nodiscard]] CUresult MakeGreenStream(GreenContext* green, int priority, Stream** stream);
wire::StreamId IdOf(const Stream* stream);
// Waits until the work in the context's streams is done.
[[nodiscard]] CUresult WaitForStreamsOf(const GreenContext& green);
// Ends the executor's streams. The program's handles stay, and answer that the context is destroyed.
void EndStreamsOf(const GreenContext& green);
// The green context of a stream handle, or null.
[[nodiscard]] CUresult GreenContextOf(CUstream handle, DefaultStream null_means,
                                      GreenContext** green);

// For a reset of the context.
void ReleaseAllStreams();

}  // namespace gpuloom
