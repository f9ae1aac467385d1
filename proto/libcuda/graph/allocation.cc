// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/allocation.h"

#include <stdlib.h>
#include <string.h>

#include "proto/libcuda/graph/capture_state.h"
#include "proto/libcuda/graph/entry.h"

namespace gpuloom::graph {

std::atomic<uint32_t> graph_memory_count{0};

namespace {

struct Allocations {
  Growing<GraphMemory*> all;  // by address
  GraphMemoryUse use = {};
};
constinit Allocations allocations;

// The first at `address` or above it.
size_t LowerBound(CUdeviceptr address) {
  size_t first = 0, last = allocations.all.count();
  while (first != last) {
    const size_t middle = first + (last - first) / 2;
    if (allocations.all[middle]->address < address) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

GraphMemory* Find(CUdeviceptr address) {
  const size_t at = LowerBound(address);
  return at != allocations.all.count() && allocations.all[at]->address == address
             ? allocations.all[at]
             : nullptr;
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
  for (size_t i = memory->address != 0 ? LowerBound(memory->address) : 0;
       i < allocations.all.count(); ++i) {
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

// Memory of more than twice the size stays for larger requests: the driver would give a part of it.
bool Fits(const GraphMemory& memory, size_t size_bytes) {
  return memory.size_bytes >= size_bytes && memory.size_bytes / 2 <= size_bytes;
}

bool HasFreed(const Graph* graph, size_t size_bytes) {
  for (const GraphMemory* memory : allocations.all) {
    if (memory->home == graph && memory->freed_by != nullptr && Fits(*memory, size_bytes)) {
      return true;
    }
  }
  return false;
}

// What a graph's nodes, at any depth, do with the memory.
struct Uses {
  uint32_t allocations;
  uint32_t frees;
};
Uses CountUses(const Graph* graph, CUdeviceptr address) {
  Uses uses = {};
  for (const Node* node : graph->nodes) {
    const NodeParams& params = node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params.alloc.params.dptr == address) {
      ++uses.allocations;
    } else if (params.type == CU_GRAPH_NODE_TYPE_MEM_FREE && params.free_address == address) {
      ++uses.frees;
    }
    ForEachInner(*node, [&](const Graph* inner) {
      const Uses more = CountUses(inner, address);
      uses.allocations += more.allocations;
      uses.frees += more.frees;
    });
  }
  return uses;
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

CUresult MakeMemory(size_t size_bytes, GraphMemory** made) {
  auto* memory = static_cast<GraphMemory*>(calloc(1, sizeof(GraphMemory)));
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  CUdeviceptr address = 0;
  CUresult result = AllocateForGraph(size_bytes, &address);
  if (result == CUDA_SUCCESS) {
    GraphLock lock;
    memory->address = address;
    memory->size_bytes = size_bytes;
    memory->references = 1;
    if (allocations.all.Insert(LowerBound(address), memory)) {
      GraphMemoryUse& use = allocations.use;
      use.reserved_bytes += size_bytes;
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
    return result;
  }
  *made = memory;
  return CUDA_SUCCESS;
}

}  // namespace

GraphMemory* TakeFreed(const Graph* graph, const Edge* before, size_t count, size_t size_bytes) {
  if (!HasFreed(graph, size_bytes)) return nullptr;
  for (Node* node : graph->nodes) node->index = 0;
  Growing<Node*> seen = {};  // what is done before the new node: nearest first
  const auto see = [&seen](const Edge& edge) {
    if (edge.node->index != 0) return;
    edge.node->index = 1;
    (void)seen.Push(edge.node);  // without memory for it less is found
  };
  for (size_t i = 0; i < count; ++i) see(before[i]);
  GraphMemory* best = nullptr;
  for (size_t i = 0; i < seen.count(); ++i) {
    Node* node = seen[i];
    for (const Edge& edge : node->in) see(edge);
    if (node->params.type != CU_GRAPH_NODE_TYPE_MEM_FREE) continue;
    GraphMemory* memory = Find(node->params.free_address);
    if (memory == nullptr || memory->home != graph || memory->freed_by != node ||
        !Fits(*memory, size_bytes) || (best != nullptr && best->size_bytes <= memory->size_bytes)) {
      continue;
    }
    best = memory;
    if (best->size_bytes == size_bytes) break;
  }
  seen.Free();
  if (best != nullptr) {
    best->freed_by = nullptr;
    ++best->references;
  }
  return best;
}

CUresult MakeAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& asked, GraphMemory* freed,
                        NodeParams* to) {
  *to = {};
  CUresult result = JudgeRequest(asked);
  CUmemAccessDesc* access = nullptr;
  if (result == CUDA_SUCCESS && asked.accessDescCount != 0) {
    const size_t access_bytes = asked.accessDescCount * sizeof(CUmemAccessDesc);
    access = static_cast<CUmemAccessDesc*>(malloc(access_bytes));
    if (access != nullptr) memcpy(access, asked.accessDescs, access_bytes);
    if (access == nullptr) result = CUDA_ERROR_OUT_OF_MEMORY;
  }
  GraphMemory* memory = freed;
  if (result == CUDA_SUCCESS && memory == nullptr) result = MakeMemory(asked.bytesize, &memory);
  if (result != CUDA_SUCCESS) {
    free(access);
    if (freed == nullptr) return result;
    GraphLock lock;
    freed->home = nullptr;
    DropMemory(freed);
    return result;
  }
  to->type = CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  to->alloc = {asked, access, memory};
  to->alloc.params.accessDescs = access;
  to->alloc.params.dptr = memory->address;
  return CUDA_SUCCESS;
}

CUresult MakeAllocationIn(CUgraph handle, const CUgraphNode* before, size_t count,
                          const CUDA_MEM_ALLOC_NODE_PARAMS& asked, NodeParams* to) {
  GraphMemory* freed = nullptr;
  {
    GraphLock lock;
    const Graph* graph = FindGraph(handle);
    EdgeList edges;
    if (graph != nullptr && edges.Read(graph, before, nullptr, count) == CUDA_SUCCESS) {
      freed = TakeFreed(graph, edges.edges.begin(), edges.edges.count(), asked.bytesize);
    }
  }
  return MakeAllocation(asked, freed, to);
}

CUresult MakeStreamAllocation(const StreamRef& stream, size_t size_bytes, NodeParams* to) {
  CUDA_MEM_ALLOC_NODE_PARAMS asked = {};
  asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  asked.bytesize = size_bytes;
  GraphMemory* freed = nullptr;
  {
    GraphLock lock;
    Capture* capture;
    const CapturedStream* captured = capturing::FindStream(stream.key, &capture);
    if (captured != nullptr && capture->graph != nullptr && !capture->invalid) {
      freed = TakeFreed(capture->graph, captured->dependencies.begin(),
                        captured->dependencies.count(), size_bytes);
    }
  }
  return MakeAllocation(asked, freed, to);
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

void NoteAllocation(const Node& node) {
  if (node.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    GraphMemory* memory = node.params.alloc.memory;
    memory->home = node.graph;
    ++memory->uses;
  } else if (GraphMemory* memory = Find(node.params.free_address);
             memory != nullptr && memory->home == node.graph) {
    memory->freed_by = &node;
  }
}

void ForgetAllocation(const Node& node) {
  GraphMemory* memory = node.params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC
                            ? node.params.alloc.memory
                            : Find(node.params.free_address);
  if (memory != nullptr && memory->home == node.graph) {
    memory->home = nullptr;
    memory->freed_by = nullptr;
  }
}

bool MayFree(const Graph* root, CUdeviceptr address) {
  const Uses uses = CountUses(root, address);
  return uses.frees < (uses.allocations > 1 ? uses.allocations : 1);
}

bool ReusesMemory(const Graph* graph) {
  if (graph_memory_count.load(std::memory_order_acquire) == 0) return false;
  for (const Node* node : graph->nodes) {
    const NodeParams& params = node->params;
    bool reuses = params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params.alloc.memory->uses > 1;
    ForEachInner(*node, [&](const Graph* inner) { reuses = reuses || ReusesMemory(inner); });
    if (reuses) return true;
  }
  return false;
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
      SetLive(params.alloc.memory, true);
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
