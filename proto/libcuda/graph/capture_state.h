// SPDX-License-Identifier: Apache-2.0
// The state of captures under way, for capture.cc and captured_event.cc. All of it is guarded by the model's lock
// (GraphLock), which the caller of each function holds. `state` owns the captures, which own their streams. False or
// null means out of memory, unless stated otherwise.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/capture.h"

namespace gpuloom::graph {

// The key of a stream that was destroyed while it took part.
inline constexpr uint64_t kNoStream = UINT64_MAX;

struct CapturedStream {
  StreamRef stream;
  Growing<Edge> dependencies;  // what its next operation depends on
  // The dependencies that GetCaptureInfo returned last.
  Growing<CUgraphNode> shown_nodes;
  Growing<CUgraphEdgeData> shown_data;
};

struct Capture {
  uint64_t id;
  Graph* graph;  // null once it was destroyed
  bool invalid;
  CUstreamCaptureMode mode;
  const void* thread;  // identifies the thread that began it
  uint64_t origin;     // key of the stream it began in
  Growing<CapturedStream*> streams;
};

namespace capturing {

// An event whose last record was in a capture.
struct CapturedEvent {
  CUevent event;
  Capture* capture;  // null once that has ended
  Growing<Edge> dependencies;
};

struct State {
  Growing<Capture*> captures;
  Growing<CapturedEvent> events;  // by handle
  uint64_t last_id = 0;
};
extern State state;

CapturedStream* FindStream(uint64_t key, Capture** capture);  // or null
CapturedStream* Join(Capture* capture, const StreamRef& stream);
void FreeStream(CapturedStream* stream);

[[nodiscard]] bool SameEdges(const Edge* from, size_t count, Growing<Edge>* to);
// Adds edges that are not there yet.
[[nodiscard]] bool AddEdges(const Edge* from, size_t count, Growing<Edge>* to);
[[nodiscard]] bool Unite(const Growing<Edge>& from, Growing<Edge>* to);

// Begins to record an operation if the stream is capturing. Returns false if it is not, and the operation may be sent.
[[nodiscard]] bool Enter(const StreamRef& stream, CapturedStream** captured, Capture** capture,
                         CUresult* result);
// Records the operation; always returns true, with *result. Takes `params` over.
bool Record(CapturedStream* stream, Capture* capture, NodeParams* params, CUresult* result);

[[nodiscard]] CUresult CheckUnsafeLocked();

void RemoveEvent(size_t index);

}  // namespace capturing
}  // namespace gpuloom::graph
