// SPDX-License-Identifier: Apache-2.0
// What a graph's node does: the parameters of each kind, owned as plain values.
//
// A NodeParams owns what its pointers name (packed kernel parameters, attributes, lists, child graphs and bodies); it
// is made by the Make… functions, copied by CopyParams and freed by FreeParams. All zero is a valid value that owns
// nothing. Handles (functions, events, contexts) stay the program's. No exceptions, no C++ library: this is compiled
// into tenants' processes.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom::graph {

struct Graph;
struct GraphMemory;

// Where a parameter of a kernel lies in its packed buffer.
struct KernelParam {
  uint32_t offset_bytes;
  uint32_t size_bytes;
};

// The `extra` list shown to a program that passed its parameters as one.
struct PackedList {
  void* list[5];
  size_t size_bytes;
};

// A program that queries a node's parameters gets pointers to `packed`, `params` and `extra`, and may write through
// them: they are the node's. They stay as long as the node has a kernel with the same parameters.
struct KernelParams {
  // As the program passed them: the kernel is `function`, or `kernel` when that is null.
  CUfunction function;
  CUkernel kernel;
  CUcontext context;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t param_bytes;  // of `packed`
  uint32_t param_count;  // of `params`; 0 when the layout is not known
  uint32_t attribute_count;
  uint8_t* packed;      // all parameters in the kernel's own layout; owned
  void** params;        // pointers into `packed`, unless the program has set others; owned
  KernelParam* places;  // of each parameter; owned
  PackedList* extra;    // null: the program passed an array of pointers; owned
  CUlaunchAttribute* attributes;  // owned

  const void* handle() const {
    return function != nullptr ? static_cast<const void*>(function)
                               : static_cast<const void*>(kernel);
  }
};

struct MemcpyParams {
  CUDA_MEMCPY3D copy;  // also of one and two dimensions: Height and Depth are 1 then
  CUcontext context;
};

struct BatchMemOpParams {
  CUcontext context;
  uint32_t count;
  uint32_t flags;
  CUstreamBatchMemOpParams* operations;  // owned
};

struct MemAllocParams {
  CUDA_MEM_ALLOC_NODE_PARAMS params;  // dptr: the address, given when the node is made
  CUmemAccessDesc* access;            // owned; what params.accessDescs points to
  GraphMemory* memory;                // shared by the node's copies, see allocation.h
};

struct ChildParams {
  Graph* graph;  // owned; a moved one belongs to the program until a node has it
  CUgraphChildGraphNodeOwnership ownership;
};

// A node that runs one of its bodies, once or repeatedly, as its condition says (conditional.h).
struct ConditionalParams {
  CUgraphConditionalHandle handle;
  CUgraphConditionalNodeType kind;
  uint32_t count;
  Graph** bodies;  // `count` of them; owned, as the array is, which the program sees as handles
  CUcontext context;
};

struct NodeParams {
  CUgraphNodeType type;
  union {
    KernelParams kernel;
    MemcpyParams memcpy;
    CUDA_MEMSET_NODE_PARAMS_v2 memset;
    CUDA_HOST_NODE_PARAMS_v2 host;
    ChildParams child;
    ConditionalParams conditional;
    CUevent event;  // of WAIT_EVENT and EVENT_RECORD
    BatchMemOpParams batch;
    MemAllocParams alloc;
    CUdeviceptr free_address;
  };
};

// Where each parameter of a kernel lies in its packed buffer: `param_at` reads entry `index` of `table`, whose form
// only its owner knows.
struct KernelLayout {
  bool known;         // false: only a packed buffer works
  uint32_t count;     // parameters
  uint32_t bytes;     // of the packed buffer
  const void* table;  // passed to param_at
  void (*param_at)(const void* table, uint32_t index, uint32_t* offset_bytes, uint32_t* size_bytes);
  // The library's kernel that the function is a form of, or null. NVIDIA's runtime uses it to find the program's
  // symbol when it queries a node's parameters.
  CUkernel kernel;
};

// The parameters of a kernel node: CUDA's array of pointers or its `extra` list (never both), copied now.
// INVALID_VALUE for a wrong call, NOT_SUPPORTED if only a packed buffer would work.
[[nodiscard]] CUresult MakeKernelParams(const CUDA_KERNEL_NODE_PARAMS_v3& from,
                                        const KernelLayout& layout, NodeParams* to);
// Updates `packed` from the array of pointers, in which the program may have set others. Must be called before a
// node's `packed` is read.
void PackShown(const KernelParams& kernel);
// Whether a kernel node keeps the attribute. Those that order a launch within its stream are edges of a graph, or
// nothing: a captured launch waits for all that came before it.
bool IsNodeAttribute(CUlaunchAttributeID id);
// Adds or replaces one attribute.
[[nodiscard]] CUresult SetKernelAttribute(KernelParams* kernel, CUlaunchAttributeID id,
                                          const CUlaunchAttributeValue& value);
// Null if the kernel does not have it.
const CUlaunchAttributeValue* FindKernelAttribute(const KernelParams& kernel,
                                                  CUlaunchAttributeID id);

// One-dimensional. HOST addresses are in the node's srcHost and dstHost, DEVICE and UNIFIED ones in srcDevice and
// dstDevice.
NodeParams LinearCopy(CUmemorytype to_type, uint64_t to, CUmemorytype from_type, uint64_t from,
                      size_t size_bytes, CUcontext context);
NodeParams LinearFill(CUdeviceptr to, uint32_t value, uint32_t element_bytes, size_t count,
                      CUcontext context);
NodeParams HostCall(CUhostFn function, void* data);
NodeParams EventOperation(CUgraphNodeType type, CUevent event);
[[nodiscard]] CUresult MakeBatch(const CUDA_BATCH_MEM_OP_NODE_PARAMS& from, NodeParams* to);

// A copy that owns everything it points to; child graphs and bodies are cloned. False if out of memory.
[[nodiscard]] bool CopyParams(const NodeParams& from, NodeParams* to);
// Moves *from, of the same kind, into *to, whose old parameters are freed. What the program has been shown of *to
// stays where it is if the new ones have its form.
void ReplaceParams(NodeParams* to, NodeParams* from);
void FreeParams(NodeParams* params);

}  // namespace gpuloom::graph
