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

}  // namespace gpuloom::graph::capturing
