// SPDX-License-Identifier: Apache-2.0
// Making, copying, exchanging and freeing the parameters of a node. Two rules shape it: every
// failure is a lack of memory that leaves a value FreeParams can take, and what a program has been
// shown of a kernel's parameters must not move.
#include "proto/libcuda/graph/node.h"

#include <stdlib.h>
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {
namespace {

// Copies `count` values; null if there are none. Returns false if there is no memory.
template <typename T>
bool Duplicate(const T* from, size_t count, T** to) {
  *to = nullptr;
  if (count == 0) return true;
  *to = static_cast<T*>(malloc(count * sizeof(T)));
  if (*to == nullptr) return false;
  memcpy(static_cast<void*>(*to), from, count * sizeof(T));
  return true;
}

// The buffer in the program's `extra` list, which must hold at least the `bytes` of the kernel's
// layout. A larger buffer is accepted and its end ignored.
CUresult FindPacked(void** extra, uint32_t bytes, const void** packed) {
  const void* buffer = nullptr;
  const size_t* size = nullptr;
  for (; extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
    if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) {
      buffer = extra[1];
    } else if (extra[0] == CU_LAUNCH_PARAM_BUFFER_SIZE) {
      size = static_cast<const size_t*>(extra[1]);
    } else {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  if (bytes != 0 && (buffer == nullptr || size == nullptr || *size < bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *packed = buffer;
  return CUDA_SUCCESS;
}

// Makes the list that shows `packed`. Returns false if there is no memory.
bool MakeList(KernelParams* kernel) {
  kernel->extra = static_cast<PackedList*>(calloc(1, sizeof(PackedList)));
  if (kernel->extra == nullptr) return false;
  kernel->extra->size_bytes = kernel->param_bytes;
  void* const list[5] = {CU_LAUNCH_PARAM_BUFFER_POINTER, kernel->packed,
                         CU_LAUNCH_PARAM_BUFFER_SIZE, &kernel->extra->size_bytes,
                         CU_LAUNCH_PARAM_END};
  memcpy(kernel->extra->list, list, sizeof(list));
  return true;
}

// Copies the arguments into *to, whose other fields are set already. On failure *to is half made;
// the caller frees it.
CUresult TakeParams(const CUDA_KERNEL_NODE_PARAMS_v3& from, const KernelLayout& layout,
                    KernelParams* to) {
  const void* packed = nullptr;
  if (from.extra != nullptr) {
    if (from.kernelParams != nullptr) return CUDA_ERROR_INVALID_VALUE;
    CUDA_RETURN_IF_ERROR(FindPacked(from.extra, layout.bytes, &packed));
  } else if (layout.count != 0) {
    if (from.kernelParams == nullptr) return CUDA_ERROR_INVALID_VALUE;
    // The pointers cannot be followed without the parameters' sizes.
    if (!layout.known) return CUDA_ERROR_NOT_SUPPORTED;
    for (uint32_t i = 0; i < layout.count; ++i) {
      if (from.kernelParams[i] == nullptr) return CUDA_ERROR_INVALID_VALUE;
    }
  }
  // All that the program passed has been judged; from here on only memory can fail.
  to->param_bytes = layout.bytes;
  to->param_count = layout.known ? layout.count : 0;
  if (layout.bytes != 0) {
    to->packed = static_cast<uint8_t*>(calloc(1, layout.bytes));
    if (to->packed == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  if (to->param_count != 0) {
    to->params = static_cast<void**>(calloc(to->param_count, sizeof(void*)));
    to->places = static_cast<KernelParam*>(calloc(to->param_count, sizeof(KernelParam)));
    if (to->params == nullptr || to->places == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  }
  for (uint32_t i = 0; i < to->param_count; ++i) {
    KernelParam& place = to->places[i];
    layout.param_at(layout.table, i, &place.offset_bytes, &place.size_bytes);
    to->params[i] = to->packed + place.offset_bytes;
    if (packed == nullptr) memcpy(to->params[i], from.kernelParams[i], place.size_bytes);
  }
  if (packed != nullptr && layout.bytes != 0) memcpy(to->packed, packed, layout.bytes);
  return from.extra == nullptr || MakeList(to) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

// The copy's pointers lead into its own buffers, even where the program has set others in the
// original: their values are in `packed` by then.
bool CopyKernel(const KernelParams& from, KernelParams* to) {
  PackShown(from);
  *to = from;
  to->params = nullptr;
  to->places = nullptr;
  to->extra = nullptr;
  to->attributes = nullptr;
  if (!Duplicate(from.packed, from.param_bytes, &to->packed) ||
      !Duplicate(from.params, from.param_count, &to->params) ||
      !Duplicate(from.places, from.param_count, &to->places) ||
      !Duplicate(from.attributes, from.attribute_count, &to->attributes) ||
      (from.extra != nullptr && !MakeList(to))) {
    return false;
  }
  for (uint32_t i = 0; i < to->param_count; ++i) {
    to->params[i] = to->packed + to->places[i].offset_bytes;
  }
  return true;
}

// New parameters must have the same form, because the program may have pointers to all of it.
bool HasForm(const KernelParams& a, const KernelParams& b) {
  return a.param_bytes == b.param_bytes && a.param_count == b.param_count &&
         (a.extra == nullptr) == (b.extra == nullptr) &&
         (a.param_count == 0 || memcmp(a.places, b.places, a.param_count * sizeof(*a.places)) == 0);
}

template <typename T>
void Exchange(T* a, T* b) {
  const T old = *a;
  *a = *b;
  *b = old;
}

// Gives the buffers of *to, which the program may have pointers to, the values of *from, and hands
// them to *from. ReplaceParams then frees what is left in *to and moves *from there, buffers
// included. Pointers that the program has set in `params` end here: the new values replace them.
void KeepStorage(KernelParams* to, KernelParams* from) {
  if (to->param_bytes != 0) memcpy(to->packed, from->packed, to->param_bytes);
  for (uint32_t i = 0; i < to->param_count; ++i) {
    to->params[i] = to->packed + to->places[i].offset_bytes;
  }
  Exchange(&to->packed, &from->packed);
  Exchange(&to->params, &from->params);
  Exchange(&to->places, &from->places);
  Exchange(&to->extra, &from->extra);
}

// On failure *to holds the bodies made so far, and null for the rest: FreeParams copes with both.
bool CopyBodies(const ConditionalParams& from, ConditionalParams* to) {
  to->bodies = static_cast<Graph**>(calloc(from.count, sizeof(Graph*)));
  for (uint32_t i = 0; to->bodies != nullptr && i < from.count; ++i) {
    to->bodies[i] = CloneGraph(from.bodies[i]);
    if (to->bodies[i] == nullptr) return false;
  }
  return to->bodies != nullptr;
}

}  // namespace

CUresult MakeKernelParams(const CUDA_KERNEL_NODE_PARAMS_v3& from, const KernelLayout& layout,
                          NodeParams* to) {
  *to = {};
  to->type = CU_GRAPH_NODE_TYPE_KERNEL;
  to->kernel = {};
  KernelParams& kernel = to->kernel;
  kernel.function = from.func;
  // A node made from a function has a kernel, too, if a library has it: queries show both.
  kernel.kernel = from.func != nullptr ? layout.kernel : from.kern;
  kernel.context = from.ctx;
  kernel.grid[0] = from.gridDimX;
  kernel.grid[1] = from.gridDimY;
  kernel.grid[2] = from.gridDimZ;
  kernel.block[0] = from.blockDimX;
  kernel.block[1] = from.blockDimY;
  kernel.block[2] = from.blockDimZ;
  kernel.dynamic_shared_bytes = from.sharedMemBytes;
  const CUresult result = TakeParams(from, layout, &kernel);
  if (result != CUDA_SUCCESS) FreeParams(to);
  return result;
}

void PackShown(const KernelParams& kernel) {
  for (uint32_t i = 0; i < kernel.param_count; ++i) {
    void* const own = kernel.packed + kernel.places[i].offset_bytes;
    if (kernel.params[i] != own) memcpy(own, kernel.params[i], kernel.places[i].size_bytes);
  }
}

bool IsNodeAttribute(CUlaunchAttributeID id) {
  switch (id) {
    case CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW:
    case CU_LAUNCH_ATTRIBUTE_COOPERATIVE:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
    case CU_LAUNCH_ATTRIBUTE_PRIORITY:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP:
    case CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_CLUSTER_DIMENSION:
    case CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE:
    case CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      return true;
    default:
      return false;
  }
}

const CUlaunchAttributeValue* FindKernelAttribute(const KernelParams& kernel,
                                                  CUlaunchAttributeID id) {
  for (uint32_t i = 0; i < kernel.attribute_count; ++i) {
    if (kernel.attributes[i].id == id) return &kernel.attributes[i].value;
  }
  return nullptr;
}

CUresult SetKernelAttribute(KernelParams* kernel, CUlaunchAttributeID id,
                            const CUlaunchAttributeValue& value) {
  for (uint32_t i = 0; i < kernel->attribute_count; ++i) {
    if (kernel->attributes[i].id == id) {
      kernel->attributes[i].value = value;
      return CUDA_SUCCESS;
    }
  }
  void* grown = realloc(kernel->attributes,
                        (size_t{kernel->attribute_count} + 1) * sizeof(CUlaunchAttribute));
  if (grown == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  kernel->attributes = static_cast<CUlaunchAttribute*>(grown);
  CUlaunchAttribute& attribute = kernel->attributes[kernel->attribute_count++];
  // The padding too: updates compare attributes byte by byte (update.cc).
  memset(&attribute, 0, sizeof(attribute));
  attribute.id = id;
  attribute.value = value;
  return CUDA_SUCCESS;
}

NodeParams LinearCopy(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from,
                      size_t size_bytes, CUcontext context) {
  NodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params.memcpy = {};
  CUDA_MEMCPY3D& copy = params.memcpy.copy;
  copy.srcMemoryType = from_type;
  copy.dstMemoryType = to_type;
  if (from_type == CU_MEMORYTYPE_HOST) {
    copy.srcHost = reinterpret_cast<const void*>(from);
  } else {
    copy.srcDevice = from;
  }
  if (to_type == CU_MEMORYTYPE_HOST) {
    copy.dstHost = reinterpret_cast<void*>(to);
  } else {
    copy.dstDevice = to;
  }
  copy.WidthInBytes = size_bytes;
  copy.Height = copy.Depth = 1;
  params.memcpy.context = context;
  return params;
}

NodeParams LinearFill(CUdeviceptr to, uint32_t value, uint32_t element_bytes, size_t count,
                      CUcontext context) {
  NodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_MEMSET;
  // A single row, which needs no pitch.
  params.memset = {to, 0, value, element_bytes, count, 1, context};
  return params;
}

NodeParams HostCall(CUhostFn function, void* data) {
  NodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_HOST;
  params.host = {function, data};
  return params;
}

NodeParams EventOperation(CUgraphNodeType type, CUevent event) {
  NodeParams params = {};
  params.type = type;
  params.event = event;
  return params;
}

CUresult MakeBatch(const CUDA_BATCH_MEM_OP_NODE_PARAMS& from, NodeParams* to) {
  *to = {};
  // 256 is CUDA's own limit.
  if (from.count > 256 || (from.count != 0 && from.paramArray == nullptr) || from.flags != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  to->type = CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
  to->batch = {from.ctx, from.count, from.flags, nullptr};
  return Duplicate(from.paramArray, from.count, &to->batch.operations) ? CUDA_SUCCESS
                                                                       : CUDA_ERROR_OUT_OF_MEMORY;
}

bool CopyParams(const NodeParams& from, NodeParams* to) {
  // This copies what owns nothing. The cases below replace each owned pointer, also when they fail,
  // so that FreeParams never frees the original's.
  *to = from;
  bool room = true;
  switch (from.type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      room = CopyKernel(from.kernel, &to->kernel);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      room = Duplicate(from.batch.operations, from.batch.count, &to->batch.operations);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      room = Duplicate(from.alloc.access, from.alloc.params.accessDescCount, &to->alloc.access);
      // CUDA's struct has a pointer of its own to the list, which a program gets to see.
      to->alloc.params.accessDescs = to->alloc.access;
      // Even if the list could not be copied: FreeParams drops it.
      HoldMemory(to->alloc.memory);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      // The copy owns its graph from the start, however the original came by its own.
      to->child = {CloneGraph(from.child.graph), CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
      room = to->child.graph != nullptr;
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      room = CopyBodies(from.conditional, &to->conditional);
      break;
    default:
      break;
  }
  if (!room) {
    FreeParams(to);
    *to = {};
  }
  return room;
}

void FreeParams(NodeParams* params) {
  switch (params->type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
      free(params->kernel.packed);
      free(params->kernel.params);
      free(params->kernel.places);
      free(params->kernel.extra);
      free(params->kernel.attributes);
      break;
    case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
      free(params->batch.operations);
      break;
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
      free(params->alloc.access);
      DropMemory(params->alloc.memory);
      break;
    case CU_GRAPH_NODE_TYPE_GRAPH:
      // A moved graph without an owner has not arrived: adding its node failed, and it is the
      // program's still.
      if (params->child.graph != nullptr &&
          (params->child.ownership == CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE ||
           params->child.graph->owner != nullptr)) {
        DestroyGraph(params->child.graph);
      }
      break;
    case CU_GRAPH_NODE_TYPE_CONDITIONAL:
      for (uint32_t i = 0; params->conditional.bodies != nullptr && i < params->conditional.count;
           ++i) {
        if (params->conditional.bodies[i] != nullptr) DestroyGraph(params->conditional.bodies[i]);
      }
      free(params->conditional.bodies);
      break;
    default:
      break;
  }
  *params = {};
}

void ReplaceParams(NodeParams* to, NodeParams* from) {
  // Among the kinds whose parameters can be set, only these two give a program pointers into the node.
  if (to->type == CU_GRAPH_NODE_TYPE_KERNEL && HasForm(to->kernel, from->kernel)) {
    KeepStorage(&to->kernel, &from->kernel);
  } else if (to->type == CU_GRAPH_NODE_TYPE_BATCH_MEM_OP && to->batch.count == from->batch.count &&
             to->batch.count != 0) {
    memcpy(to->batch.operations, from->batch.operations,
           to->batch.count * sizeof(*to->batch.operations));
    Exchange(&to->batch.operations, &from->batch.operations);
  }
  FreeParams(to);
  *to = *from;
  *from = {};
}

}  // namespace gpuloom::graph
