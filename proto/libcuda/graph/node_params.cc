// SPDX-License-Identifier: Apache-2.0
// The checks that the driver makes when a node gets its parameters, as far as they can be made in
// the program's process. They are for the program's sake (an error at the call that caused it), not
// for safety: the executor judges what it is sent again.
#include "proto/libcuda/graph/node_params.h"

#include <string.h>

#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {
namespace {

bool IsMemoryType(CUmemorytype type) {
  return type >= CU_MEMORYTYPE_HOST && type <= CU_MEMORYTYPE_UNIFIED;
}

// Returns true if the box that is copied fits into the rows and slices of one side.
bool Fits(const CUDA_MEMCPY3D& copy, CUmemorytype type, size_t x_bytes, size_t y, size_t pitch,
          size_t height) {
  // An array has its own extent, which the copy's pitch and height do not describe.
  if (type == CU_MEMORYTYPE_ARRAY) return true;
  if ((copy.Height > 1 || copy.Depth > 1) && pitch != 0 && pitch < x_bytes + copy.WidthInBytes) {
    return false;
  }
  return copy.Depth <= 1 || height == 0 || height >= y + copy.Height;
}

// Returns true if a side that claims to be device memory lies in it entirely.
bool IsReachable(const CUDA_MEMCPY3D& copy, CUmemorytype type, CUdeviceptr base, size_t x_bytes,
                 size_t y, size_t z, size_t pitch, size_t height) {
  // A unified address may be host memory, of which nothing is known here.
  if (type != CU_MEMORYTYPE_DEVICE) return true;
  // Zero pitch or height: rows or slices follow each other without a gap.
  const uint64_t row = pitch != 0 ? pitch : x_bytes + copy.WidthInBytes;
  const uint64_t rows = height != 0 ? height : y + copy.Height;
  uint64_t first, last, slices;
  // From the first row's begin to the last row's end.
  if (__builtin_mul_overflow(uint64_t{z}, rows, &first) ||
      __builtin_add_overflow(first, uint64_t{y}, &first) ||
      __builtin_mul_overflow(first, row, &first) ||
      __builtin_add_overflow(first, uint64_t{x_bytes}, &first) ||
      __builtin_add_overflow(first, uint64_t{base}, &first) ||
      __builtin_mul_overflow(uint64_t{copy.Depth} - 1, rows, &slices) ||
      __builtin_add_overflow(slices, uint64_t{copy.Height} - 1, &slices) ||
      __builtin_mul_overflow(slices, row, &last) ||
      __builtin_add_overflow(last, uint64_t{copy.WidthInBytes}, &last)) {
    return false;
  }
  return IsDeviceReachable(first, last);
}

CUcontext OrCurrent(CUcontext context) { return context != nullptr ? context : CurrentContext(); }

bool UsesReserved(const CUgraphNodeParams& from) {
  return from.reserved0[0] != 0 || from.reserved0[1] != 0 || from.reserved0[2] != 0 ||
         from.reserved2 != 0;
}

}  // namespace

CUresult ReadKernel(const CUDA_KERNEL_NODE_PARAMS_v3* from, NodeParams* to) {
  *to = {};
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  const void* handle = from->func != nullptr ? static_cast<const void*>(from->func)
                                             : static_cast<const void*>(from->kern);
  if (handle == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  KernelLayout layout;
  CUresult result = DescribeKernel(handle, &layout);
  if (result == CUDA_SUCCESS) result = MakeKernelParams(*from, layout, to);
  if (result == CUDA_SUCCESS) result = CheckKernelShape(to->kernel);
  if (result != CUDA_SUCCESS) FreeParams(to);
  return result;
}

CUresult ReadMemcpy(const CUDA_MEMCPY3D* from, CUcontext context, NodeParams* to) {
  *to = {};
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  if (!IsMemoryType(from->srcMemoryType) || !IsMemoryType(from->dstMemoryType) ||
      from->reserved0 != nullptr || from->reserved1 != nullptr || from->srcLOD != 0 ||
      from->dstLOD != 0 ||
      !Fits(*from, from->srcMemoryType, from->srcXInBytes, from->srcY, from->srcPitch,
            from->srcHeight) ||
      !Fits(*from, from->dstMemoryType, from->dstXInBytes, from->dstY, from->dstPitch,
            from->dstHeight)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Also what makes the subtractions in IsReachable safe.
  if (from->WidthInBytes == 0 || from->Height == 0 || from->Depth == 0 ||
      !IsReachable(*from, from->srcMemoryType, from->srcDevice, from->srcXInBytes, from->srcY,
                   from->srcZ, from->srcPitch, from->srcHeight) ||
      !IsReachable(*from, from->dstMemoryType, from->dstDevice, from->dstXInBytes, from->dstY,
                   from->dstZ, from->dstPitch, from->dstHeight)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  to->type = CU_GRAPH_NODE_TYPE_MEMCPY;
  to->memcpy = {*from, OrCurrent(context)};
  return CUDA_SUCCESS;
}

CUresult ReadMemset(const CUDA_MEMSET_NODE_PARAMS* from, CUcontext context, NodeParams* to) {
  *to = {};
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsContext(context)) return CUDA_ERROR_INVALID_CONTEXT;
  const unsigned element = from->elementSize;
  if ((element != 1 && element != 2 && element != 4) || from->dst % element != 0 ||
      from->width == 0 || from->height == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  uint64_t row_bytes;
  uint64_t bytes;
  if (__builtin_mul_overflow(uint64_t{from->width}, uint64_t{element}, &row_bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // The pitch of a single row means nothing.
  bytes = row_bytes;
  if (from->height > 1) {
    if (from->pitch < row_bytes ||
        __builtin_mul_overflow(uint64_t{from->pitch}, uint64_t{from->height - 1}, &bytes) ||
        __builtin_add_overflow(bytes, row_bytes, &bytes)) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (!IsDeviceReachable(from->dst, bytes)) return CUDA_ERROR_INVALID_VALUE;
  to->type = CU_GRAPH_NODE_TYPE_MEMSET;
  to->memset = {from->dst,   from->pitch,  from->value,       from->elementSize,
                from->width, from->height, OrCurrent(context)};
  return CUDA_SUCCESS;
}

CUresult ReadHost(const CUDA_HOST_NODE_PARAMS* from, NodeParams* to) {
  *to = {};
  if (from == nullptr || from->fn == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *to = HostCall(from->fn, from->userData);
  return CUDA_SUCCESS;
}

CUresult ReadEvent(CUgraphNodeType type, CUevent event, NodeParams* to) {
  *to = {};
  if (event == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsEvent(event)) return CUDA_ERROR_INVALID_HANDLE;
  *to = EventOperation(type, event);
  return CUDA_SUCCESS;
}

CUresult ReadBatch(const CUDA_BATCH_MEM_OP_NODE_PARAMS* from, NodeParams* to) {
  *to = {};
  if (from == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!IsContext(from->ctx)) return CUDA_ERROR_INVALID_CONTEXT;
  return MakeBatch(*from, to);
}

CUresult ReadChildLocked(CUgraph child, CUgraphChildGraphNodeOwnership ownership, Graph* parent,
                         NodeParams* to) {
  *to = {};
  Graph* graph = FindGraph(child);
  // As in the driver, any other value means that the graph is cloned.
  const bool moves = ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
  if (graph == nullptr || graph->executable || (graph == parent && !moves)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // docs/design/graphs.md says what a child graph may contain.
  if (graph->owner != nullptr || HasConditions(graph) ||
      (HasAllocations(graph) && (!moves || IsInstantiated(graph)))) {
    return CUDA_ERROR_NOT_SUPPORTED;
  }
  // The driver moves a graph into itself, too, which can then never be run nor destroyed.
  if (moves && RootOf(parent) == graph) return CUDA_ERROR_NOT_SUPPORTED;
  if (!moves) graph = CloneGraph(graph);
  if (graph == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  to->type = CU_GRAPH_NODE_TYPE_GRAPH;
  to->child = {graph,
               moves ? CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE : CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
  return CUDA_SUCCESS;
}

CUresult ReadAllocation(const CUgraphNodeParams& from, CUDA_MEM_ALLOC_NODE_PARAMS* asked) {
  if (UsesReserved(from)) return CUDA_ERROR_INVALID_VALUE;
  static_assert(sizeof(*asked) == sizeof(from.alloc));
  memcpy(asked, &from.alloc, sizeof(*asked));
  return CUDA_SUCCESS;
}

CUresult ReadParams(const CUgraphNodeParams* from, NodeParams* to) {
  *to = {};
  if (from == nullptr || UsesReserved(*from)) return CUDA_ERROR_INVALID_VALUE;
  switch (from->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return ReadKernel(&from->kernel, to);
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      if (from->memcpy.flags != 0 || from->memcpy.reserved != 0) return CUDA_ERROR_INVALID_VALUE;
      return ReadMemcpy(&from->memcpy.copyParams, from->memcpy.copyCtx, to);
    case CU_GRAPH_NODE_TYPE_MEMSET: {
      const CUDA_MEMSET_NODE_PARAMS memset = ShowMemset(from->memset);
      return ReadMemset(&memset, from->memset.ctx, to);
    }
    case CU_GRAPH_NODE_TYPE_HOST: {
      const CUDA_HOST_NODE_PARAMS host = {from->host.fn, from->host.userData};
      return ReadHost(&host, to);
    }
    case CU_GRAPH_NODE_TYPE_EMPTY:
      to->type = CU_GRAPH_NODE_TYPE_EMPTY;
      return CUDA_SUCCESS;
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
      return ReadEvent(from->type, from->eventWait.event, to);
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return ReadEvent(from->type, from->eventRecord.event, to);
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: {
      const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {from->memOp.ctx, from->memOp.count,
                                                   from->memOp.paramArray, from->memOp.flags};
      return ReadBatch(&batch, to);
    }
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return MakeFree(from->free.dptr, to);
    // Semaphores are not offered; the other two are never set, and added by functions of their own.
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL:
    case CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT:
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      return CUDA_ERROR_NOT_SUPPORTED;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUDA_KERNEL_NODE_PARAMS ShowKernel(const KernelParams& kernel) {
  CUDA_KERNEL_NODE_PARAMS shown = {};
  shown.func = kernel.function;
  shown.gridDimX = kernel.grid[0];
  shown.gridDimY = kernel.grid[1];
  shown.gridDimZ = kernel.grid[2];
  shown.blockDimX = kernel.block[0];
  shown.blockDimY = kernel.block[1];
  shown.blockDimZ = kernel.block[2];
  shown.sharedMemBytes = kernel.dynamic_shared_bytes;
  shown.kernelParams = kernel.extra == nullptr ? kernel.params : nullptr;
  shown.extra = kernel.extra == nullptr ? nullptr : kernel.extra->list;
  shown.kern = kernel.kernel;
  shown.ctx = kernel.context;
  return shown;
}

CUDA_MEMSET_NODE_PARAMS ShowMemset(const CUDA_MEMSET_NODE_PARAMS_v2& memset) {
  return {memset.dst, memset.pitch, memset.value, memset.elementSize, memset.width, memset.height};
}

}  // namespace gpuloom::graph
