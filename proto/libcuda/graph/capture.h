// SPDX-License-Identifier: Apache-2.0
// Stream capture: operations on a capturing stream become nodes of a graph instead of work. All of it happens in the
// program's process, see docs/design/graphs.md.
//
// Every stream operation asks before it is sent, after its arguments were checked:
//
//   CUresult result;
//   if (graph::Records(stream, &result, [&](graph::NodeParams* node) {
//         *node = graph::LinearFill(…);     // node.h has makers
//         return CUDA_SUCCESS;
//       })) {
//     return result;
//   }
//
// Records returns true if the operation must not be sent: it was recorded, or refused with *result (on the legacy
// stream while a blocking stream captures; in an invalidated capture). Operations that a graph cannot hold call
// RefuseInCapture instead; calls that may be unsafe during a capture (allocating, freeing, querying an event) call
// CheckUnsafe first.
//
// The functions take the model's lock themselves unless their names end in Locked. Safe from any thread. Failures are
// CUDA's codes, for the program's call.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

extern std::atomic<uint32_t> capture_count;
extern std::atomic<uint32_t> captured_event_count;

// Whether any stream may be capturing.
inline bool AnyCapture() { return capture_count.load(std::memory_order_acquire) != 0; }
// Whether any event's last record may have been captured.
inline bool AnyCapturedEvent() { return captured_event_count.load(std::memory_order_acquire) != 0; }

// Takes ownership of `params` if it returns true.
[[nodiscard]] bool TakesPart(const StreamRef& stream, NodeParams* params, CUresult* result);

// Whether TakesPart would return true.
[[nodiscard]] bool Participates(const StreamRef& stream);

// `make(NodeParams*)` is called only if a capture concerns the stream; its error is the operation's.
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

// For operations that cannot be captured (callbacks, synchronous copies): an error if the stream captures, which
// invalidates the capture; also for the legacy stream if it would wait for a capturing one.
[[nodiscard]] CUresult RefuseInCapture(const StreamRef& stream);
// The same for synchronizing with a stream and querying it, which are potentially unsafe on the other streams.
[[nodiscard]] CUresult RefuseToWait(const StreamRef& stream);
// For calls that wait for all streams of the context.
[[nodiscard]] CUresult RefuseWhileAnyCaptures();
// For potentially unsafe calls, according to the thread's mode and the captures' modes.
[[nodiscard]] CUresult CheckUnsafe();

// Event records and waits, called without checking AnyCapture. True: done or refused, with *result; false: go on and
// send. A record that goes on makes the event an ordinary one again.
[[nodiscard]] bool CapturesRecord(const StreamRef& stream, CUevent event, unsigned flags,
                                  CUresult* result);
[[nodiscard]] bool CapturesWait(const StreamRef& stream, CUevent event, unsigned flags,
                                CUresult* result);
// For event queries and waits: CAPTURED_EVENT, which invalidates the capture, if the event belongs to it;
// INVALID_VALUE if that capture has ended; else as CheckUnsafe.
[[nodiscard]] CUresult CheckEventUse(CUevent event);
// The same for elapsed-time queries, which invalidate nothing and are never unsafe.
[[nodiscard]] CUresult CheckEventTime(CUevent event);

// A launch with invalid arguments invalidates the capture that it would have been part of. (An invalid copy does not.)
void InvalidateCapture(const StreamRef& stream);

// Call them when the handle was destroyed.
void ForgetStream(const StreamRef& stream);
void ForgetEvent(CUevent event);
// For a reset of the context: all captures end.
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

// graph == null: the capture gets its own graph. `dependencies` are in `graph`.
[[nodiscard]] CUresult BeginCaptureLocked(const StreamRef& stream, Graph* graph,
                                          const Edge* dependencies, size_t count,
                                          CUstreamCaptureMode mode);
[[nodiscard]] CUresult EndCaptureLocked(const StreamRef& stream, Graph** graph);
[[nodiscard]] CUresult UpdateDependenciesLocked(const StreamRef& stream, const Edge* dependencies,
                                                size_t count, bool replace);
// The graph that the stream captures into, or null.
Graph* CapturedGraphLocked(const StreamRef& stream);

// A node is destroyed: captures no longer depend on it.
void ForgetNodeLocked(Node* node);
// A graph is destroyed. A capture that adds to it becomes invalid, and depends on nothing.
void ForgetGraphLocked(Graph* graph);

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode);

}  // namespace gpuloom::graph
