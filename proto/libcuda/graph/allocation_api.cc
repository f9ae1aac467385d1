// SPDX-License-Identifier: Apache-2.0
// Allocation and free nodes, and the account of graphs' memory.
#include <limits.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/entry.h"

namespace gpuloom::graph {
namespace {

// The second look at the handles: memory is asked for without the lock, so they may be stale by
// then. Takes `params` over.
CUresult Add(CUgraphNode* out, CUgraph graph_handle, const CUgraphNode* dependencies, size_t count,
             NodeParams* params) {
  GraphLock lock;
  Graph* graph = FindGraph(graph_handle);
  EdgeList before;
  CUresult result = graph == nullptr ? CUDA_ERROR_INVALID_VALUE
                                     : before.Read(graph, dependencies, nullptr, count);
  if (result != CUDA_SUCCESS) {
    FreeParams(params);
    return result;
  }
  Node* node;
  result = AddNode(graph, params, before.edges.begin(), before.edges.count(), &node);
  if (result == CUDA_SUCCESS) *out = HandleOf(node);
  return result;
}

}  // namespace
}  // namespace gpuloom::graph

using namespace gpuloom::graph;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuGraphAddMemAllocNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                                size_t count, CUDA_MEM_ALLOC_NODE_PARAMS* asked) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  if (out == nullptr || asked == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams params;
  CUDA_RETURN_IF_ERROR(MakeAllocationIn(graph, dependencies, count, *asked, &params));
  // Kept because Add takes `params` over; the program's struct is written only when the node
  // exists.
  const CUdeviceptr address = params.alloc.params.dptr;
  const CUresult result = Add(out, graph, dependencies, count, &params);
  if (result == CUDA_SUCCESS) asked->dptr = address;
  return result;
}
CUresult cuGraphMemAllocNodeGetParams(CUgraphNode handle, CUDA_MEM_ALLOC_NODE_PARAMS* out) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Node* node = FindNode(handle, CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = node->params.alloc.params;
  return CUDA_SUCCESS;
}

CUresult cuGraphAddMemFreeNode(CUgraphNode* out, CUgraph graph, const CUgraphNode* dependencies,
                               size_t count, CUdeviceptr address) {
  CUDA_RETURN_IF_ERROR(CheckReady());
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  NodeParams params;
  const CUresult result = MakeFree(address, &params);
  return result == CUDA_SUCCESS ? Add(out, graph, dependencies, count, &params) : result;
}
CUresult cuGraphMemFreeNodeGetParams(CUgraphNode handle, CUdeviceptr* out) {
  CUDA_RETURN_IF_ERROR(CheckInitialized());
  GraphLock lock;
  const Node* node = FindNode(handle, CU_GRAPH_NODE_TYPE_MEM_FREE);
  if (node == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = node->params.free_address;
  return CUDA_SUCCESS;
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                      void* value) {
  CUDA_RETURN_IF_ERROR(CheckDevice(device));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  GraphLock lock;
  const GraphMemoryUse use = MemoryUse();
  // All four attributes are 64 bits wide.
  auto* bytes = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
      *bytes = use.bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      *bytes = use.used_high_bytes;
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      *bytes = use.reserved_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice device, CUgraphMem_attribute attribute,
                                      void* value) {
  CUDA_RETURN_IF_ERROR(CheckDevice(device));
  // High watermarks can be set to zero, and nothing else.
  if (value == nullptr || *static_cast<const cuuint64_t*>(value) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  GraphLock lock;
  switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
      ResetUsedHigh();
      return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
      ResetReservedHigh();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

// Memory is given back with the last graph that has it: there is nothing to trim.
CUresult cuDeviceGraphMemTrim(CUdevice device) { return CheckDevice(device); }

}  // extern "C"
