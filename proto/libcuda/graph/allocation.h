// SPDX-License-Identifier: Apache-2.0
// Memory of allocation nodes. An address is taken when the node is made and backed as long as a
// graph or an executable graph has the node, or the program has the memory of a launch that did not
// free it. So a launch allocates and frees nothing; it only keeps account of who may free.
//
// One record for an allocation node and all copies of it. Needs GraphLock unless it says otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

struct GraphMemory {
  CUdeviceptr address;
  uint64_t size_bytes;
  uint32_t references;  // nodes
  bool live;            // a launch has allocated it, and nobody has freed it since
};

extern std::atomic<uint32_t> graph_memory_count;

// A node with memory of its own. Without the lock. INVALID_VALUE for what is no request,
// NOT_SUPPORTED for memory that is not the device's.
[[nodiscard]] CUresult MakeAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& asked, NodeParams* to);
// The same for cuMemAllocAsync.
[[nodiscard]] CUresult MakeStreamAllocation(size_t size_bytes, NodeParams* to);
// INVALID_VALUE when it is no allocation node's memory. Without the lock.
[[nodiscard]] CUresult MakeFree(CUdeviceptr address, NodeParams* to);

void HoldMemory(GraphMemory* memory);
void DropMemory(GraphMemory* memory);

// The account of a launch: INVALID_VALUE when memory of an earlier one was not freed and the graph
// does not free by itself. ApplyLaunch when the launch was made.
[[nodiscard]] CUresult CheckLaunch(const Exec& exec);
void ApplyLaunch(const Exec& exec);

// For cuMemFree and cuMemFreeAsync, before they look themselves: true when the address is a graph's
// memory, *result is the call's. Without the lock.
[[nodiscard]] bool FreesGraphMemory(CUdeviceptr address, CUresult* result);

// For the reset of the context, which takes all memory along. Takes the lock.
void ForgetGraphMemory();

struct GraphMemoryUse {
  uint64_t used_bytes;
  uint64_t used_high_bytes;
  uint64_t reserved_bytes;
  uint64_t reserved_high_bytes;
};
GraphMemoryUse MemoryUse();
void ResetUsedHigh();
void ResetReservedHigh();

}  // namespace gpuloom::graph
