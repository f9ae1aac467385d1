// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/capture_state.h"

#include <stdlib.h>

namespace gpuloom::graph::capturing {

constinit State state;

namespace {

// Invalidates the captures that the legacy stream's barrier would touch; returns true if there are any.
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

}  // namespace

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

bool SameEdges(const Edge* from, size_t count, Growing<Edge>* to) {
  to->Clear();
  for (size_t i = 0; i < count; ++i) {
    if (!to->Push(from[i])) return false;
  }
  return true;
}

// A node may depend on another only once: an edge to a node that is there already is left out,
// whatever its data.
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

// Makes the stream part of the capture, depending on nothing yet. Streams are allocated one by one,
// because callers keep pointers to them while the list grows.
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

bool Enter(const StreamRef& stream, CapturedStream** captured, Capture** capture,
           CUresult* result) {
  *result = CUDA_SUCCESS;
  *captured = nullptr;
  if (stream.legacy) {
    // No capture has this stream: *captured stays null.
    if (!InvalidateBehindLegacy()) return false;
    *result = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    return true;
  }
  *captured = FindStream(stream.key, capture);
  if (*captured == nullptr) return false;
  // Still true is returned: nothing of an invalid capture may be sent, or it would run at once.
  if ((*capture)->invalid || (*capture)->graph == nullptr) {
    *result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  }
  return true;
}

// The stream's next operation depends on this node alone, which is what makes a stream's work a
// chain. A node that cannot be added breaks the capture: its graph would lack an operation.
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

}  // namespace gpuloom::graph::capturing
