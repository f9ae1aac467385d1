// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/allocation.h"

#include <stdlib.h>
#include <string.h>

namespace gpuloom::graph {

std::atomic<uint32_t> graph_memory_count{0};

namespace {

struct Allocations {
  Growing<GraphMemory*> all;
  GraphMemoryUse use = {};
};
constinit Allocations allocations;

GraphMemory* Find(CUdeviceptr address) {
  for (GraphMemory* memory : allocations.all) {
    if (memory->address == address) return memory;
  }
  return nullptr;
}

void SetLive(GraphMemory* memory, bool live) {
  if (memory->live == live) return;
  memory->live = live;
  GraphMemoryUse& use = allocations.use;
  use.used_bytes += live ? memory->size_bytes : 0 - memory->size_bytes;
  if (use.used_bytes > use.used_high_bytes) use.used_high_bytes = use.used_bytes;
}

// Frees the memory once neither a node nor the program has it any more.
void ReleaseUnused(GraphMemory* memory) {
  if (memory->references != 0 || memory->live) return;
  for (size_t i = 0; i < allocations.all.count(); ++i) {
    if (allocations.all[i] == memory) {
      allocations.all.Remove(i);
      break;
    }
  }
  if (memory->address != 0) {
    allocations.use.reserved_bytes -= memory->size_bytes;
    FreeForGraph(memory->address);
  }
  free(memory);
  graph_memory_count.fetch_sub(1, std::memory_order_acq_rel);
}

bool IsFreedIn(const Exec& exec, CUdeviceptr address) {
  for (const Step& step : exec.definition.steps) {
    const NodeParams& params = step.node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && params.free_address == address) return true;
  }
  return false;
}

CUresult JudgeRequest(const CUDA_MEM_ALLOC_NODE_PARAMS& asked) {
  if (asked.bytesize == 0 || asked.poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
      asked.poolProps.handleTypes != CU_MEM_HANDLE_TYPE_NONE ||
      (asked.accessDescCount != 0 && asked.accessDescs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (asked.poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_NOT_SUPPORTED;
  const CUresult known = CheckDevice(asked.poolProps.location.id);
  if (known != CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  // Only the device that has the memory can be given access; there is no other.
  for (size_t i = 0; i < asked.accessDescCount; ++i) {
    if (asked.accessDescs[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
        asked.accessDescs[i].location.id != asked.poolProps.location.id) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

}  // namespace

CUresult MakeAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& asked, NodeParams* to) {
  *to = {};
  CUresult result = JudgeRequest(asked);
  if (result != CUDA_SUCCESS) return result;
  auto* memory = static_cast<GraphMemory*>(calloc(1, sizeof(GraphMemory)));
  CUmemAccessDesc* access = nullptr;
  const size_t access_bytes = asked.accessDescCount * sizeof(CUmemAccessDesc);
  if (access_bytes != 0) {
    access = static_cast<CUmemAccessDesc*>(malloc(access_bytes));
    if (access != nullptr) memcpy(access, asked.accessDescs, access_bytes);
  }
  CUdeviceptr address = 0;
  result = memory == nullptr || (access_bytes != 0 && access == nullptr)
               ? CUDA_ERROR_OUT_OF_MEMORY
               : AllocateForGraph(asked.bytesize, &address);
  if (result == CUDA_SUCCESS) {
    GraphLock lock;
    *memory = {address, asked.bytesize, 1, false};
    if (allocations.all.Push(memory)) {
      GraphMemoryUse& use = allocations.use;
      use.reserved_bytes += asked.bytesize;
      if (use.reserved_bytes > use.reserved_high_bytes) {
        use.reserved_high_bytes = use.reserved_bytes;
      }
      graph_memory_count.fetch_add(1, std::memory_order_acq_rel);
    } else {
      FreeForGraph(address);
      result = CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  if (result != CUDA_SUCCESS) {
    free(memory);
    free(access);
    return result;
  }
  to->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  to->alloc = {asked, access, memory};
  to->alloc.params.accessDescs = access;
  to->alloc.params.dptr = address;
  return CUDA_SUCCESS;
}

CUresult MakeStreamAllocation(size_t size_bytes, NodeParams* to) {
  CUDA_MEM_ALLOC_NODE_PARAMS asked = {};
  asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  asked.bytesize = size_bytes;
  return MakeAllocation(asked, to);
}

CUresult MakeFree(CUdeviceptr address, NodeParams* to) {
  *to = {};
  GraphLock lock;
  if (address == 0 || Find(address) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  to->type = CU_GRAPH_NODE_TYPE_MEM_FREE;
  to->free_address = address;
  return CUDA_SUCCESS;
}

void HoldMemory(GraphMemory* memory) { ++memory->references; }
void DropMemory(GraphMemory* memory) {
  --memory->references;
  ReleaseUnused(memory);
}

CUresult CheckLaunch(const Exec& exec) {
  if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 ||
      graph_memory_count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  for (const Step& step : exec.definition.steps) {
    const NodeParams& params = step.node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params.alloc.memory->live) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

void ApplyLaunch(const Exec& exec) {
  if (graph_memory_count.load(std::memory_order_acquire) == 0) return;
  for (const Step& step : exec.definition.steps) {
    const NodeParams& params = step.node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      SetLive(params.alloc.memory, !IsFreedIn(exec, params.alloc.params.dptr));
    } else if (params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      GraphMemory* memory = Find(params.free_address);
      if (memory != nullptr) {
        SetLive(memory, false);
        ReleaseUnused(memory);
      }
    }
  }
}

bool FreesGraphMemory(CUdeviceptr address, CUresult* result) {
  if (graph_memory_count.load(std::memory_order_acquire) == 0 || address == 0) return false;
  GraphLock lock;
  GraphMemory* memory = Find(address);
  if (memory == nullptr) return false;
  *result = memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  SetLive(memory, false);
  ReleaseUnused(memory);
  return true;
}

void ForgetGraphMemory() {
  GraphLock lock;
  for (size_t i = allocations.all.count(); i-- > 0;) {
    GraphMemory* memory = allocations.all[i];
    SetLive(memory, false);
    memory->address = 0;
    if (memory->references == 0) ReleaseUnused(memory);
  }
  allocations.use.reserved_bytes = 0;
}

GraphMemoryUse MemoryUse() { return allocations.use; }
void ResetUsedHigh() { allocations.use.used_high_bytes = allocations.use.used_bytes; }
void ResetReservedHigh() { allocations.use.reserved_high_bytes = allocations.use.reserved_bytes; }

}  // namespace gpuloom::graph
