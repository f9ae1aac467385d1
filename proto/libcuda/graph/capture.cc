// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/capture.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"

namespace gpuloom::graph {

std::atomic<uint32_t> capture_count{0};
std::atomic<uint32_t> captured_event_count{0};

// The key of a stream that was destroyed while it took part.
constexpr uint64_t kNoStream = UINT64_MAX;

struct CapturedStream {
  StreamRef stream;
  Growing<Edge> dependencies;  // what its next operation comes after
  // What GetCaptureInfo last showed of them.
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

namespace {

// An event whose last record was in a capture.
struct CapturedEvent {
  CUevent event;
  Capture* capture;  // null once that has ended
  Growing<Edge> dependencies;
};

struct State {
  Growing<Capture*> captures;
  Growing<CapturedEvent> events;
  uint64_t last_id = 0;
};
constinit State state;

thread_local CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
thread_local char thread_mark;  // its address is the thread's identity

CapturedStream* FindStream(uint64_t key, Capture** capture) {
  for (Capture* candidate : state.captures) {
    for (CapturedStream* stream : candidate->streams) {
      if (stream->stream.key == key) {
        *capture = candidate;
        return stream;
      }
    }
  }
  return nullptr;
}

size_t FindEventIndex(CUevent event) {
  for (size_t i = 0; i < state.events.count(); ++i) {
    if (state.events[i].event == event) return i;
  }
  return state.events.count();
}

void RemoveEvent(size_t index) {
  state.events[index].dependencies.Free();
  state.events.Remove(index);
  captured_event_count.fetch_sub(1, std::memory_order_acq_rel);
}

bool SameEdges(const Edge* from, size_t count, Growing<Edge>* to) {
  to->Clear();
  for (size_t i = 0; i < count; ++i) {
    if (!to->Push(from[i])) return false;
  }
  return true;
}

// Adds what is not there yet; false without memory.
bool AddEdges(const Edge* from, size_t count, Growing<Edge>* to) {
  for (size_t i = 0; i < count; ++i) {
    bool known = false;
    for (const Edge& there : *to) known |= there.node == from[i].node;
    if (!known && !to->Push(from[i])) return false;
  }
  return true;
}
bool Unite(const Growing<Edge>& from, Growing<Edge>* to) {
  return AddEdges(from.begin(), from.count(), to);
}

void FreeStream(CapturedStream* stream) {
  stream->dependencies.Free();
  stream->shown_nodes.Free();
  stream->shown_data.Free();
  free(stream);
}

CapturedStream* Join(Capture* capture, const StreamRef& stream) {
  auto* joined = static_cast<CapturedStream*>(calloc(1, sizeof(CapturedStream)));
  if (joined == nullptr) return nullptr;
  joined->stream = stream;
  if (!capture->streams.Push(joined)) {
    free(joined);
    return nullptr;
  }
  return joined;
}

// The capture is over, however it went. The graph is the caller's.
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

// As the driver: a broken capture takes its graph along, also one that the program gave it.
void DropGraph(Capture* capture) {
  Graph* graph = capture->graph;
  if (graph == nullptr || graph->owner != nullptr) return;
  capture->graph = nullptr;
  graph->capture = nullptr;
  DestroyGraph(graph);
}

// Does the legacy stream's barrier touch a capturing stream? Those captures end as invalid.
bool InvalidateBehindLegacy() {
  bool any = false;
  for (Capture* capture : state.captures) {
    for (const CapturedStream* stream : capture->streams) {
      if (stream->stream.blocking) {
        capture->invalid = true;
        any = true;
      }
    }
  }
  return any;
}

// Recording into the stream, if it captures. False: it does not, and nothing forbids to send.
bool Enter(const StreamRef& stream, CapturedStream** captured, Capture** capture,
           CUresult* result) {
  *result = CUDA_SUCCESS;
  *captured = nullptr;
  if (stream.legacy) {
    if (!InvalidateBehindLegacy()) return false;
    *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return true;
  }
  *captured = FindStream(stream.key, capture);
  if (*captured == nullptr) return false;
  if ((*capture)->invalid || (*capture)->graph == nullptr) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return true;
}

bool Record(CapturedStream* stream, Capture* capture, NodeParams* params, CUresult* result) {
  Node* added = nullptr;
  *result = AddNode(capture->graph, params, stream->dependencies.begin(),
                    stream->dependencies.count(), &added);
  if (*result == CUDA_SUCCESS) {
    stream->dependencies.Clear();
    if (!stream->dependencies.Push({added, {}})) *result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (*result != CUDA_SUCCESS) capture->invalid = true;
  return true;
}

CUresult CheckUnsafeLocked() {
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

bool TakesPart(const StreamRef& stream, NodeParams* params, CUresult* result) {
  GraphLock lock;
  CapturedStream* captured;
  Capture* capture;
  if (!Enter(stream, &captured, &capture, result)) return false;
  // Which does not break the capture.
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

bool CapturesRecord(const StreamRef& stream, CUevent event, unsigned flags, CUresult* result) {
  const bool external = (flags & CU_EVENT_RECORD_EXTERNAL) != 0;
  if (!external && !AnyCapture() && !AnyCapturedEvent()) return false;
  GraphLock lock;
  CapturedStream* captured;
  Capture* capture;
  if (!Enter(stream, &captured, &capture, result)) {
    if (external) {
      *result = CUDA_ERROR_ILLEGAL_STATE;
      return true;
    }
    const size_t index = FindEventIndex(event);
    if (index != state.events.count()) RemoveEvent(index);
    return false;
  }
  if (*result != CUDA_SUCCESS) return true;
  if (external) {
    NodeParams params = EventOperation(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event);
    return Record(captured, capture, &params, result);
  }
  const size_t index = FindEventIndex(event);
  if (index == state.events.count()) {
    if (!state.events.Push({event, capture, {}})) {
      *result = CUDA_ERROR_OUT_OF_MEMORY;
      return true;
    }
    captured_event_count.fetch_add(1, std::memory_order_acq_rel);
  }
  CapturedEvent& recorded = state.events[index];
  recorded.capture = capture;
  if (!SameEdges(captured->dependencies.begin(), captured->dependencies.count(),
                 &recorded.dependencies)) {
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return true;
}

bool CapturesWait(const StreamRef& stream, CUevent event, unsigned flags, CUresult* result) {
  const bool external = (flags & CU_EVENT_WAIT_EXTERNAL) != 0;
  if (!external && !AnyCapture() && !AnyCapturedEvent()) return false;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  const bool known = index != state.events.count();
  CapturedStream* captured;
  Capture* capture = nullptr;
  if (!Enter(stream, &captured, &capture, result)) {
    if (external) {
      *result = CUDA_ERROR_ILLEGAL_STATE;
      return true;
    }
    if (!known) return false;
    Capture* other = state.events[index].capture;
    if (other == nullptr) {
      *result = CUDA_ERROR_INVALID_VALUE;  // of a capture that has ended
      return true;
    }
    if (other->invalid) {
      *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
      return true;
    }
    if (stream.legacy) {
      // The legacy stream cannot take part in a capture.
      other->invalid = true;
      *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
      return true;
    }
    CapturedStream* joined = Join(other, stream);
    if (joined == nullptr || !Unite(state.events[index].dependencies, &joined->dependencies)) {
      other->invalid = true;
      *result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return true;
  }
  if (*result != CUDA_SUCCESS) return true;
  if (external) {
    NodeParams params = EventOperation(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event);
    return Record(captured, capture, &params, result);
  }
  if (!known && !WasRecorded(event)) return true;  // nothing to wait for
  if (!known || state.events[index].capture == nullptr) {
    capture->invalid = true;
    *result = CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return true;
  }
  if (state.events[index].capture != capture) {
    capture->invalid = true;
    state.events[index].capture->invalid = true;
    *result = CUDA_ERROR_STREAM_CAPTURE_MERGE;
    return true;
  }
  if (!Unite(state.events[index].dependencies, &captured->dependencies)) {
    capture->invalid = true;
    *result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  return true;
}

CUresult CheckEventUse(CUevent event) {
  if (!AnyCapture() && !AnyCapturedEvent()) return CUDA_SUCCESS;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index == state.events.count()) return CheckUnsafeLocked();
  if (state.events[index].capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
  state.events[index].capture->invalid = true;
  return CUDA_ERROR_CAPTURED_EVENT;
}

CUresult CheckEventTime(CUevent event) {
  if (!AnyCapturedEvent()) return CUDA_SUCCESS;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index == state.events.count()) return CUDA_SUCCESS;
  return state.events[index].capture == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                : CUDA_ERROR_CAPTURED_EVENT;
}

void InvalidateCapture(const StreamRef& stream) {
  if (!AnyCapture()) return;
  GraphLock lock;
  Capture* capture;
  if (FindStream(stream.key, &capture) != nullptr) capture->invalid = true;
}

void ForgetStream(const StreamRef& stream) {
  if (!AnyCapture()) return;
  GraphLock lock;
  Capture* capture;
  CapturedStream* captured = FindStream(stream.key, &capture);
  if (captured == nullptr) return;
  if (capture->origin == stream.key) {
    DropGraph(capture);
    Finish(capture);
    return;
  }
  // What it did must still be joined to the origin.
  captured->stream = {kNoStream, false, false};
}

void ForgetEvent(CUevent event) {
  if (!AnyCapturedEvent()) return;
  GraphLock lock;
  const size_t index = FindEventIndex(event);
  if (index != state.events.count()) RemoveEvent(index);
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
  if (capture->origin != stream.key) {
    capture->invalid = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
  }
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
}

CUstreamCaptureMode ExchangeThreadMode(CUstreamCaptureMode mode) {
  const CUstreamCaptureMode old = thread_mode;
  thread_mode = mode;
  return old;
}

}  // namespace gpuloom::graph
