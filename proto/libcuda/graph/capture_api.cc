// SPDX-License-Identifier: Apache-2.0
// cuStream*Capture*: beginning, ending and asking about captures. Each call comes as a pair: the
// plain name takes NULL for the legacy default stream, the _ptsz name takes it for the thread's
// own.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/entry.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {
namespace {

constexpr NullStream kLegacy = NullStream::kLegacy;
constexpr NullStream kPerThread = NullStream::kPerThread;

CUresult Resolve(CUstream handle, NullStream null_means, StreamRef* stream) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  return ResolveStream(handle, null_means, stream);
}

bool IsMode(CUstreamCaptureMode mode) {
  return mode >= CU_STREAM_CAPTURE_MODE_GLOBAL && mode <= CU_STREAM_CAPTURE_MODE_RELAXED;
}

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

CUresult Begin(CUstream handle, NullStream null_means, CUstreamCaptureMode mode) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (!IsMode(mode)) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  return BeginCaptureLocked(stream, nullptr, nullptr, 0, mode);
}

CUresult BeginToGraph(CUstream handle, NullStream null_means, CUgraph graph_handle,
                      const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count,
                      CUstreamCaptureMode mode) {
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

CUresult End(CUstream handle, NullStream null_means, CUgraph* graph_out) {
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
  RunDestructors();
  return result;
}

struct Asked {
  cuuint64_t* id = nullptr;
  CUgraph* graph = nullptr;
  const CUgraphNode** nodes = nullptr;
  const CUgraphEdgeData** data = nullptr;
  size_t* count = nullptr;
};

CUresult GetInfo(CUstream handle, NullStream null_means, CUstreamCaptureStatus* status,
                 const Asked& asked) {
  StreamRef stream;
  CUDA_RETURN_IF_ERROR(Resolve(handle, null_means, &stream));
  if (status == nullptr || (asked.data != nullptr && asked.nodes == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  CaptureInfo info;
  CUDA_RETURN_IF_ERROR(GetCaptureInfo(stream, &info));
  *status = info.status;
  // Nothing else is defined then.
  if (info.status != CU_STREAM_CAPTURE_STATUS_ACTIVE) return CUDA_SUCCESS;
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

CUresult Update(CUstream handle, NullStream null_means, const CUgraphNode* nodes,
                const CUgraphEdgeData* data, size_t count, unsigned flags) {
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

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom::graph;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuStreamBeginCapture(CUstream stream) {
  return Begin(stream, kLegacy, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCapture_ptsz(CUstream stream) {
  return Begin(stream, kPerThread, CU_STREAM_CAPTURE_MODE_GLOBAL);
}
CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return Begin(stream, kLegacy, mode);
}
CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode) {
  return Begin(stream, kPerThread, mode);
}
CUresult cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                     const CUgraphEdgeData* data, size_t count,
                                     CUstreamCaptureMode mode) {
  return BeginToGraph(stream, kLegacy, graph, nodes, data, count, mode);
}
CUresult cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph, const CUgraphNode* nodes,
                                          const CUgraphEdgeData* data, size_t count,
                                          CUstreamCaptureMode mode) {
  return BeginToGraph(stream, kPerThread, graph, nodes, data, count, mode);
}

CUresult cuStreamEndCapture(CUstream stream, CUgraph* graph) { return End(stream, kLegacy, graph); }
CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph* graph) {
  return End(stream, kPerThread, graph);
}

CUresult cuStreamIsCapturing(CUstream stream, CUstreamCaptureStatus* status) {
  return GetInfo(stream, kLegacy, status, {});
}
CUresult cuStreamIsCapturing_ptsz(CUstream stream, CUstreamCaptureStatus* status) {
  return GetInfo(stream, kPerThread, status, {});
}
CUresult cuStreamGetCaptureInfo(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id) {
  return GetInfo(stream, kLegacy, status, {id});
}
CUresult cuStreamGetCaptureInfo_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                     cuuint64_t* id) {
  return GetInfo(stream, kPerThread, status, {id});
}
CUresult cuStreamGetCaptureInfo_v2(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes, size_t* count) {
  return GetInfo(stream, kLegacy, status, {id, graph, nodes, nullptr, count});
}
CUresult cuStreamGetCaptureInfo_v2_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        size_t* count) {
  return GetInfo(stream, kPerThread, status, {id, graph, nodes, nullptr, count});
}
CUresult cuStreamGetCaptureInfo_v3(CUstream stream, CUstreamCaptureStatus* status, cuuint64_t* id,
                                   CUgraph* graph, const CUgraphNode** nodes,
                                   const CUgraphEdgeData** data, size_t* count) {
  return GetInfo(stream, kLegacy, status, {id, graph, nodes, data, count});
}
CUresult cuStreamGetCaptureInfo_v3_ptsz(CUstream stream, CUstreamCaptureStatus* status,
                                        cuuint64_t* id, CUgraph* graph, const CUgraphNode** nodes,
                                        const CUgraphEdgeData** data, size_t* count) {
  return GetInfo(stream, kPerThread, status, {id, graph, nodes, data, count});
}

CUresult cuStreamUpdateCaptureDependencies(CUstream stream, CUgraphNode* nodes, size_t count,
                                           unsigned flags) {
  return Update(stream, kLegacy, nodes, nullptr, count, flags);
}
CUresult cuStreamUpdateCaptureDependencies_ptsz(CUstream stream, CUgraphNode* nodes, size_t count,
                                                unsigned flags) {
  return Update(stream, kPerThread, nodes, nullptr, count, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2(CUstream stream, CUgraphNode* nodes,
                                              const CUgraphEdgeData* data, size_t count,
                                              unsigned flags) {
  return Update(stream, kLegacy, nodes, data, count, flags);
}
CUresult cuStreamUpdateCaptureDependencies_v2_ptsz(CUstream stream, CUgraphNode* nodes,
                                                   const CUgraphEdgeData* data, size_t count,
                                                   unsigned flags) {
  return Update(stream, kPerThread, nodes, data, count, flags);
}

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  // As in the driver, any other value counts as a mode that forbids nothing.
  if (mode == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *mode = ExchangeThreadMode(*mode);
  return CUDA_SUCCESS;
}

}  // extern "C"
