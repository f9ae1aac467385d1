// SPDX-License-Identifier: Apache-2.0
// The life of a capture, and the checks by which other calls break one. Captures under way are few,
// so they are searched one by one. A capture that breaks stays, invalid, until the program ends it,
// because every later call must see that it broke. What events do is in captured_event.cc.
#include "proto/libcuda/graph/capture.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/capture_state.h"

namespace gpuloom::graph {

using namespace capturing;  // what this file works on

std::atomic<uint32_t> capture_count{0};
std::atomic<uint32_t> captured_event_count{0};

namespace {

// What the program may change with cuThreadExchangeStreamCaptureMode.
thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local char thread_mark;  // its address is the thread's identity

// Ends a capture that succeeded or failed; its graph is the caller's to keep or to destroy. Its
// events stay in the table without a capture: using one is an error until it is recorded anew.
void Finish(Capture* capture) {
  for (CapturedStream* stream : capture->streams) FreeStream(stream);
  capture->streams.Free();
  for (CapturedEvent& event : state.events) {
    if (event.capture == capture) {
      event.capture = nullptr;
      event.dependencies.Clear();
    }
  }
  for (size_t i = 0; i < state.captures.count(); ++i) {
    if (state.captures[i] == capture) {
      state.captures.Remove(i);
      break;
    }
  }
  if (capture->graph != nullptr) capture->graph->capture = nullptr;
  free(capture);
  capture_count.fetch_sub(1, std::memory_order_acq_rel);
}

// As in the driver, a failed capture destroys its graph, even one that the program provided.
void DropGraph(Capture* capture) {
  Graph* graph = capture->graph;
  // A body or child graph is its node's, which keeps it.
  if (graph == nullptr || graph->owner != nullptr) return;
  DestroyGraph(graph);
  capture->graph = nullptr;
}

// Marks everything that `edges` come after, themselves included, with index 1.
CUresult MarkAncestors(Graph* graph, const Growing<Edge>& edges) {
  for (Node* node : graph->nodes) node->index = 0;
  Growing<Node*> open;
  for (const Edge& edge : edges) {
    if (!open.Push(edge.node)) {
      open.Free();
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  while (open.count() != 0) {
    Node* node = open[open.count() - 1];
    open.Remove(open.count() - 1);
    if (node->index != 0) continue;
    node->index = 1;
    for (const Edge& edge : node->in) {
      if (edge.node->index == 0 && !open.Push(edge.node)) {
        open.Free();
        return CUDA_ERROR_OUT_OF_MEMORY;
      }
    }
  }
  open.Free();
  return CUDA_SUCCESS;
}

// Whether everything that was captured in other streams comes before what the origin stream ends
// with. Streams that were destroyed meanwhile count, too: their work is in the graph.
CUresult CheckJoined(const Capture& capture, const CapturedStream& origin) {
  CUDA_RETURN_IF_ERROR(MarkAncestors(capture.graph, origin.dependencies));
  for (const CapturedStream* stream : capture.streams) {
    for (const Edge& edge : stream->dependencies) {
      if (edge.node->index == 0) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

// The table of cuThreadExchangeStreamCaptureMode's manual. Every capture that forbids the call is
// invalidated, not only the first.
CUresult capturing::CheckUnsafeLocked() {
  // Relaxed, or a value that is no mode.
  if (thread_mode != CU_STREAM_CAPTURE_MODE_GLOBAL &&
      thread_mode != CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) {
    return CUDA_SUCCESS;
  }
  CUresult result = CUDA_SUCCESS;
  for (Capture* capture : state.captures) {
    const bool ours = capture->thread == &thread_mark;
    const bool forbids = ours ? capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED
                              : capture->mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
                                    thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL;
    if (forbids) {
      capture->invalid = true;
      result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
  }
  return result;
}

// Only looks. The legacy stream concerns a capture if a blocking stream takes part in it: its
// barrier would have to wait for work that is not going to run.
bool Participates(const StreamRef& stream) {
  GraphLock lock;
  if (!stream.legacy) {
    Capture* capture;
    return FindStream(stream.key, &capture) != nullptr;
  }
  for (const Capture* capture : state.captures) {
    for (const CapturedStream* captured : capture->streams) {
      if (captured->stream.blocking) return true;
    }
  }
  return false;
}

// Asks again what Participates has answered, because the lock was released in between, while
// `params` were made.
bool TakesPart(const StreamRef& stream, NodeParams* params, CUresult* result) {
  GraphLock lock;
  CapturedStream* captured;
  Capture* capture;
  if (!Enter(stream, &captured, &capture, result)) return false;
  // This error does not invalidate the capture.
  if (*result == CUDA_SUCCESS && IsAllocation(*params) && IsChild(capture->graph)) {
    *result = CUDA_ERROR_NOT_SUPPORTED;
  }
  if (*result != CUDA_SUCCESS) {
    FreeParams(params);
    return true;
  }
  return Record(captured, capture, params, result);
}

CUresult RefuseInCapture(const StreamRef& stream) {
  if (!AnyCapture()) return CUDA_SUCCESS;
  GraphLock lock;
  CapturedStream* captured;
  Capture* capture;
  CUresult result;
  if (!Enter(stream, &captured, &capture, &result)) return CUDA_SUCCESS;
  // Not the legacy stream, for which Enter has invalidated what it had to.
  if (captured != nullptr) {
    if (result == CUDA_SUCCESS) result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    capture->invalid = true;
  }
  return result;
}

CUresult RefuseToWait(const StreamRef& stream) {
  const CUresult result = RefuseInCapture(stream);
  return result == CUDA_SUCCESS ? CheckUnsafe() : result;
}

// Whatever the modes are: such a call would wait for the capturing streams themselves.
CUresult RefuseWhileAnyCaptures() {
  if (!AnyCapture()) return CUDA_SUCCESS;
  GraphLock lock;
  for (Capture* capture : state.captures) capture->invalid = true;
  return state.captures.count() == 0 ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult CheckUnsafe() {
  if (!AnyCapture()) return CUDA_SUCCESS;
  GraphLock lock;
  return CheckUnsafeLocked();
}

void InvalidateCapture(const StreamRef& stream) {
  if (!AnyCapture()) return;
  GraphLock lock;
  Capture* capture;
  if (FindStream(stream.key, &capture) != nullptr) capture->invalid = true;
}

void ForgetStream(const StreamRef& stream) {
  if (graph_memory_count.load(std::memory_order_acquire) != 0) ForgetTurnsIn(stream);
  if (!AnyCapture()) return;
  GraphLock lock;
  Capture* capture;
  CapturedStream* captured = FindStream(stream.key, &capture);
  if (captured == nullptr) return;
  // Without the stream in which it began, the capture could not be ended.
  if (capture->origin == stream.key) {
    DropGraph(capture);
    Finish(capture);
    return;
  }
  // Its work must still be joined to the origin stream.
  captured->stream = {kNoStream, false, false};
}

void ForgetAllCaptures() {
  GraphLock lock;
  while (state.captures.count() != 0) {
    Capture* capture = state.captures[0];
    DropGraph(capture);
    Finish(capture);
  }
  while (state.events.count() != 0) RemoveEvent(state.events.count() - 1);
}

CUresult GetCaptureInfo(const StreamRef& stream, CaptureInfo* info) {
  *info = {};
  info->status = CU_STREAM_CAPTURE_STATUS_NONE;
  if (!AnyCapture()) return CUDA_SUCCESS;
  GraphLock lock;
  // It cannot capture itself, but may be unusable meanwhile.
  if (stream.legacy) {
    for (const Capture* capture : state.captures) {
      for (const CapturedStream* captured : capture->streams) {
        if (captured->stream.blocking) return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      }
    }
    return CUDA_SUCCESS;
  }
  Capture* capture;
  CapturedStream* captured = FindStream(stream.key, &capture);
  if (captured == nullptr) return CUDA_SUCCESS;
  if (capture->invalid || capture->graph == nullptr) {
    info->status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    return CUDA_SUCCESS;
  }
  info->status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  info->id = capture->id;
  info->graph = HandleOf(capture->graph);
  captured->shown_nodes.Clear();
  captured->shown_data.Clear();
  for (const Edge& edge : captured->dependencies) {
    if (!captured->shown_nodes.Push(HandleOf(edge.node)) || !captured->shown_data.Push(edge.data)) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  info->nodes = captured->shown_nodes.begin();
  info->data = captured->shown_data.begin();
  info->count = captured->shown_nodes.count();
  return CUDA_SUCCESS;
}

CUresult BeginCaptureLocked(const StreamRef& stream, Graph* graph, const Edge* dependencies,
                            size_t count, CUstreamCaptureMode mode) {
  if (stream.legacy) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  // A stream takes part in at most one capture, and a graph is captured into by at most one.
  Capture* there;
  if (FindStream(stream.key, &there) != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (graph != nullptr && graph->capture != nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  auto* capture = static_cast<Capture*>(calloc(1, sizeof(Capture)));
  if (capture == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  capture->graph = graph != nullptr ? graph : MakeGraph();
  capture->id = ++state.last_id;
  capture->mode = mode;
  capture->thread = &thread_mark;
  capture->origin = stream.key;
  CapturedStream* origin = capture->graph == nullptr ? nullptr : Join(capture, stream);
  if (origin == nullptr || !AddEdges(dependencies, count, &origin->dependencies) ||
      !state.captures.Push(capture)) {
    // One that the program passed stays as it was.
    if (graph == nullptr) DropGraph(capture);
    if (origin != nullptr) FreeStream(origin);
    capture->streams.Free();
    free(capture);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  capture->graph->capture = capture;
  capture_count.fetch_add(1, std::memory_order_acq_rel);
  return CUDA_SUCCESS;
}

CUresult EndCaptureLocked(const StreamRef& stream, Graph** graph) {
  *graph = nullptr;
  Capture* capture;
  CapturedStream* captured = FindStream(stream.key, &capture);
  if (captured == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  // This breaks the capture but does not end it: only the origin stream can.
  if (capture->origin != stream.key) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
  // Other than in a relaxed capture, only the thread that began it may end it.
  const bool wrong_thread =
      capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED && capture->thread != &thread_mark;
  CUresult result = wrong_thread ? CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD
                    : capture->invalid || capture->graph == nullptr
                        ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
                        : CheckJoined(*capture, *captured);
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph;
  } else {
    DropGraph(capture);
  }
  Finish(capture);
  return result;
}

CUresult UpdateDependenciesLocked(const StreamRef& stream, const Edge* dependencies, size_t count,
                                  bool replace) {
  Capture* capture;
  CapturedStream* captured = FindStream(stream.key, &capture);
  if (captured == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  if (capture->invalid || capture->graph == nullptr) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  for (size_t i = 0; i < count; ++i) {
    if (dependencies[i].node->graph != capture->graph) return CUDA_ERROR_INVALID_VALUE;
  }
  // A copy first: `dependencies` may be the list that is to be cleared, or hold a node twice.
  Growing<Edge> more;
  bool room = SameEdges(dependencies, count, &more);
  if (room && replace) captured->dependencies.Clear();
  room = room && Unite(more, &captured->dependencies);
  more.Free();
  return room ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

Graph* CapturedGraphLocked(const StreamRef& stream) {
  Capture* capture;
  return FindStream(stream.key, &capture) == nullptr ? nullptr : capture->graph;
}

void ForgetNodeLocked(Node* node) {
  // Captures depend on no nodes but those of the graph they add to.
  if (node->graph->capture == nullptr) return;
  auto drop = [node](Growing<Edge>* edges) {
    for (size_t i = edges->count(); i-- > 0;) {
      if ((*edges)[i].node == node) edges->Remove(i);
    }
  };
  for (Capture* capture : state.captures) {
    for (CapturedStream* stream : capture->streams) drop(&stream->dependencies);
  }
  for (CapturedEvent& event : state.events) drop(&event.dependencies);
}

void ForgetGraphLocked(Graph* graph) {
  if (graph->capture == nullptr) return;
  Capture* capture = graph->capture;
  graph->capture = nullptr;
  capture->graph = nullptr;
  capture->invalid = true;
  // What it depends on are the graph's nodes.
  for (CapturedStream* stream : capture->streams) stream->dependencies.Clear();
  for (CapturedEvent& event : state.events) {
    if (event.capture == capture) event.dependencies.Clear();
  }
}

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode) {
  const CUstreamCaptureMode old = thread_mode;
  thread_mode = mode;
  return old;
}

}  // namespace gpuloom::graph
