// SPDX-License-Identifier: Apache-2.0
// Stream capture: a capturing stream's operations become nodes of a graph instead of work. The
// whole of it happens in the program's process, see docs/design/graphs.md.
//
// Every operation of a stream asks before it is sent, after its arguments were judged:
//
//   CUresult result;
//   if (graph::Records(stream, &result, [&](graph::NodeParams* node) {
//         *node = graph::LinearFill(…);     // node.h has makers
//         return CUDA_SUCCESS;
//       })) {
//     return result;
//   }
//
// Records is true when the operation must not be sent: it was recorded, or refused with *result
// (a legacy stream behind which a blocking stream captures; an invalidated capture). Operations
// that no graph can hold call RefuseInCapture instead; calls that may be unsafe while something
// captures (allocating, freeing, asking whether an event is done) call CheckUnsafe first.
//
// The functions take the model's lock themselves unless their names end in Locked. Safe from any
// thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

extern std::atomic<uint32_t> capture_count;
extern std::atomic<uint32_t> captured_event_count;

// Could any stream be capturing?
inline bool AnyCapture() { return capture_count.load(std::memory_order_acquire) != 0; }
// Could any event be one that a capture recorded last?
inline bool AnyCapturedEvent() { return captured_event_count.load(std::memory_order_acquire) != 0; }

// Takes `params` over when it returns true, else leaves them to the caller.
[[nodiscard]] bool TakesPart(const StreamRef& stream, NodeParams* params, CUresult* result);

// Would TakesPart be true?
[[nodiscard]] bool Participates(const StreamRef& stream);

// `make(NodeParams*)` is called only when something captures that concerns the stream; its error is
// the operation's.
template <typename Make>
[[nodiscard]] bool Records(const StreamRef& stream, CUresult* result, Make&& make) {
  if (!AnyCapture()) [[likely]]
    return false;
  if (!Participates(stream)) return false;
  NodeParams params = {};
  *result = make(&params);
  if (*result != CUDA_SUCCESS || TakesPart(stream, &params, result)) return true;
  FreeParams(&params);
  return false;
}

// For what cannot be captured (callbacks, synchronous copies): an error when the stream captures,
// which invalidates the capture; also for the legacy stream when it would wait for a capturing one.
[[nodiscard]] CUresult RefuseInCapture(const StreamRef& stream);
// The same for synchronising with a stream and for asking whether it is done, which are potentially
// unsafe on the other streams.
[[nodiscard]] CUresult RefuseToWait(const StreamRef& stream);
// For calls that wait for all streams of the context.
[[nodiscard]] CUresult RefuseWhileAnyCaptures();
// For potentially unsafe calls, by the thread's mode and the captures' modes.
[[nodiscard]] CUresult CheckUnsafe();

// Event records and waits, asked without AnyCapture. True: done or refused, with *result; false: go on and send. A record
// that goes on makes the event an ordinary one again.
[[nodiscard]] bool CapturesRecord(const StreamRef& stream, CUevent event, unsigned flags,
                                  CUresult* result);
[[nodiscard]] bool CapturesWait(const StreamRef& stream, CUevent event, unsigned flags,
                                CUresult* result);
// For queries and waits of an event: CAPTURED_EVENT, which invalidates the capture, when it is one
// of its; INVALID_VALUE when that capture has ended; else as CheckUnsafe.
[[nodiscard]] CUresult CheckEventUse(CUevent event);
// The same for asking times, which invalidates nothing and is never unsafe.
[[nodiscard]] CUresult CheckEventTime(CUevent event);

// A launch with wrong arguments breaks the capture that it would have been part of. (A wrong copy
// does not.)
void InvalidateCapture(const StreamRef& stream);

// The handle is gone.
void ForgetStream(const StreamRef& stream);
void ForgetEvent(CUevent event);
// For the reset of the context: all captures end.
void ForgetAllCaptures();

// The states that cuStreamGetCaptureInfo and its relatives show; the lists are valid until the next
// call for the stream.
struct CaptureInfo {
  CUstreamCaptureStatus status;
  uint64_t id;
  CUgraph graph;
  const CUgraphNode* nodes;
  const CUgraphEdgeData* data;
  size_t count;
};
[[nodiscard]] CUresult GetCaptureInfo(const StreamRef& stream, CaptureInfo* info);

// graph == null: a graph of its own. `dependencies` are of `graph`.
[[nodiscard]] CUresult BeginCaptureLocked(const StreamRef& stream, Graph* graph,
                                          const Edge* dependencies, size_t count,
                                          CUstreamCaptureMode mode);
[[nodiscard]] CUresult EndCaptureLocked(const StreamRef& stream, Graph** graph);
[[nodiscard]] CUresult UpdateDependenciesLocked(const StreamRef& stream, const Edge* dependencies,
                                                size_t count, bool replace);
// The graph being captured into in the stream, or null.
Graph* CapturedGraphLocked(const StreamRef& stream);

// A node is destroyed: no capture waits for it any longer.
void ForgetNodeLocked(Node* node);
// A graph is destroyed while a capture adds to it: the capture is invalid.
void ForgetGraphLocked(Graph* graph);

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode);

}  // namespace gpuloom::graph
