// SPDX-License-Identifier: Apache-2.0
// Memory of allocation nodes. The address is assigned when the node is created, and backed as long
// as a graph or an executable graph has the node, or the program has the memory of a launch that
// did not free it. So a launch allocates and frees nothing; it only tracks who may free.
//
// One record for an allocation node and all its copies. Needs GraphLock unless stated otherwise.
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
  bool live;            // a launch has allocated it, and it has not been freed since
};

extern std::atomic<uint32_t> graph_memory_count;

// Makes a node with its own memory. Without the lock. INVALID_VALUE for an invalid request,
// NOT_SUPPORTED for memory that is not the device's.
[[nodiscard]] CUresult MakeAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& asked, NodeParams* to);
// The same for cuMemAllocAsync.
[[nodiscard]] CUresult MakeStreamAllocation(size_t size_bytes, NodeParams* to);
// INVALID_VALUE if it is not an allocation node's memory. Without the lock.
[[nodiscard]] CUresult MakeFree(CUdeviceptr address, NodeParams* to);

void HoldMemory(GraphMemory* memory);
void DropMemory(GraphMemory* memory);

// Accounting of a launch: INVALID_VALUE if memory of an earlier one was not freed and the graph
// does not free it automatically. Call ApplyLaunch once the launch was made.
[[nodiscard]] CUresult CheckLaunch(const Exec& exec);
void ApplyLaunch(const Exec& exec);

// For cuMemFree and cuMemFreeAsync, before their own lookup: returns true if the address is graph
// memory, with the call's result in *result. Without the lock.
[[nodiscard]] bool FreesGraphMemory(CUdeviceptr address, CUresult* result);

// For a reset of the context, which frees all memory. Takes the lock.
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
