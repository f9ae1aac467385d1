// SPDX-License-Identifier: Apache-2.0
// Streams: handles, the legacy and the per-thread default streams, and the rules of who waits for
// whom. Ids are indices of the completion table; an id is used again only when its work is done.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/green_context_commands.h"
#include "proto/wire/handles.h"
#include "shim/process/thread_state.h"

namespace gpuloom {

struct GreenContext;

enum class StreamUse : uint32_t {
  kNone,  // being made, or ending
  kProgram,
  kThread,  // some thread's own default stream
  kOwn,     // the shim's
  kOrphan,  // its green context is gone, and to the executor it is, too
};

struct Stream {
  std::atomic<uint32_t> alive;
  uint32_t flags;  // CU_STREAM_*
  int32_t priority;
  std::atomic<StreamUse> use;
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

// Until all is done that a command would wait for which came to the stream now: for a blocking stream that
// includes the legacy stream's work. And what commands have failed with.
[[nodiscard]] CUresult SynchronizeForTurn(wire::StreamId id);
// A command that does nothing but have its turn.
[[nodiscard]] CUresult MarkStream(wire::StreamId id, wire::Ticket* ticket = nullptr);

// The thread ends: its own stream may go. No error is possible.
void ReleaseThreadStream(ThreadState* thread);

// A new stream with this id: it has no attributes yet (stream_attribute.cc).
void ResetStreamAttributes(wire::StreamId id);
// Its priority as made; 0 of the default streams.
int PriorityOf(wire::StreamId id);

// What was queued so far is done.
[[nodiscard]] bool IsStreamIdle(wire::StreamId id);

// The streams that work of a context may be in, the legacy one aside: those made in it and the
// threads' own; of the primary context also its green ones'. None of them ends while this lives,
// and one that is missed because it is being made has not been looked for by OrderNewStream yet.
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

// A stream that the program does not see; of the context's reset it is told by ForgetAllContextOrders.
[[nodiscard]] CUresult MakeOwnStream(unsigned flags, wire::StreamId* id);
void EndOwnStream(wire::StreamId id);

// A stream in a green context, non-blocking as all of those.
[[nodiscard]] CUresult MakeGreenStream(GreenContext* green, int priority, Stream** stream);
wire::StreamId IdOf(const Stream* stream);
// Until what the context's streams have is done.
[[nodiscard]] CUresult WaitForStreamsOf(const GreenContext& green);
// The executor's end. The program's handles stay, and say what became of them.
void EndStreamsOf(const GreenContext& green);
// The green context of a stream handle, or null.
[[nodiscard]] CUresult GreenContextOf(CUstream handle, DefaultStream null_means,
                                      GreenContext** green);

// For the reset of the context.
void ReleaseAllStreams();

}  // namespace gpuloom
