// SPDX-License-Identifier: Apache-2.0
// cuStream*Capture*: beginning, ending and asking about captures.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/entry.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {
namespace {

// Without the lock, because resolving may create the thread's own stream.
CUresult Resolve(CUstream handle, DefaultStream null_means, StreamRef* stream) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  return ResolveStream(handle, null_means, stream);
}

bool IsMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

// Live nodes of any graph; which graph they must be of, the callers check. *edges is the caller's
// to free, also on failure.
CUresult ReadEdges(const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count,
                   Growing<Edge>* edges) {
  if (count != 0 && nodes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (size_t i = 0; i < count; ++i) {
    Node* node = FindNode(nodes[i]);
    if (node == nullptr || (data != nullptr && !EdgeList::IsEdgeData(*node, data[i]))) {
      return CUDA_ERROR_INVALID_VALUE;
    }
    if (!edges->Push({node, data != nullptr ? data[i] : CUgraphEdgeData{}})) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  return CUDA_SUCCESS;
}

// What the versions of cuStreamGetCaptureInfo ask for beyond the status; null is not asked for.
struct Asked {
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** data = nullptr;
  size_t* count = nullptr;
};

CUresult GetInfo(CUstream handle, DefaultStream null_means, CUstreamCaptureStatus* status,
                 const Asked& asked) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (status == nullptr || (asked.data != nullptr && asked.nodes == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CaptureInfo info;
  CUDA_RETURN_IF_ERROR(GetCaptureInfo(stream, &info));
  *status = info.status;
  // Nothing else is defined then, and nothing else is written.
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
  // A program that asks for dependencies without their data would lose programmatic ones.
  if (asked.nodes != nullptr && asked.data == nullptr) {
    constexpr CUgraphEdgeData kPlain = {};
    for (size_t i = 0; i < info.count; ++i) {
      if (memcmp(&info.data[i], &kPlain, sizeof(kPlain)) != 0) return CUDA_ERROR_LOSSY_QUERY;
    }
  }
  if (asked.id != nullptr) *asked.id = info.id;
  if (asked.graph != nullptr) *asked.graph = info.graph;
  if (asked.nodes != nullptr) *asked.nodes = info.nodes;
  if (asked.data != nullptr) *asked.data = info.data;
  if (asked.count != nullptr) *asked.count = info.count;
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom;  // CUDA's functions are written in our terms
using namespace gpuloom::graph;

CUresult api::cuStreamBeginCapture(CUstream stream, DefaultStream null_means) {
  return cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL, null_means);
}
CUresult api::cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode,
                                      DefaultStream null_means) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  return BeginCaptureLocked(stream, nullptr, nullptr, 0, mode);
}

CUresult api::cuStreamBeginCaptureToGraph(CUstream handle, CUgraph graph_handle,
                                          const CUgraphNode* nodes, const CUgraphEdgeData* data,
                                          size_t count, CUstreamCaptureMode mode,
                                          DefaultStream null_means) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  Graph* graph = FindGraph(graph_handle);
  if (graph == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Growing<Edge> edges;
  CUresult result = ReadEdges(nodes, data, count, &edges);
  for (const Edge& edge : edges) {
    if (edge.node->graph != graph) result = CUDA_ERROR_INVALID_VALUE;
  }
  if (result == CUDA_SUCCESS) {
    result = BeginCaptureLocked(stream, graph, edges.begin(), edges.count(), mode);
  }
  edges.Free();
  return result;
}

CUresult api::cuStreamEndCapture(CUstream handle, CUgraph* graph_out, DefaultStream null_means) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  CUresult result;
  {
    Graph* graph;
    GraphLock lock;
    result = EndCaptureLocked(stream, &graph);
    // As natively, a caller that passes null either has the graph already (a body, for example) or
    // can never destroy it.
    if (graph_out != nullptr) *graph_out = graph == nullptr ? nullptr : HandleOf(graph);
  }
  // A capture that failed has destroyed its graph, which may have held user objects.
  RunDestructors();
  return result;
}

CUresult api::cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status,
                                  DefaultStream null_means) {
  return GetInfo(stream, null_means, status, {});
}
CUresult api::cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                     DefaultStream null_means) {
  return GetInfo(stream, null_means, status, {id});
}
CUresult api::cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        size_t* count, DefaultStream null_means) {
  return GetInfo(stream, null_means, status, {id, graph, nodes, nullptr, count});
}
CUresult api::cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        const CUgraphEdgeData** data, size_t* count,
                                        DefaultStream null_means) {
  return GetInfo(stream, null_means, status, {id, graph, nodes, data, count});
}

CUresult api::cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                                unsigned flags, DefaultStream null_means) {
  return cuStreamUpdateCaptureDependencies_v2(stream, nodes, nullptr, count, flags, null_means);
}

CUresult api::cuStreamUpdateCaptureDependencies_v2(CUstream handle, CUgraphNode* nodes,
                                                   const CUgraphEdgeData* data, size_t count,
                                                   unsigned flags, DefaultStream null_means) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  Growing<Edge> edges;
  CUresult result = ReadEdges(nodes, data, count, &edges);
  if (result == CUDA_SUCCESS) {
    result = UpdateDependenciesLocked(stream, edges.begin(), edges.count(),
                                      flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES);
  }
  edges.Free();
  return result;
}

extern "C" {

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  // As in the driver, any other value counts as a mode that forbids nothing.
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = ExchangeThreadMode(*mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
