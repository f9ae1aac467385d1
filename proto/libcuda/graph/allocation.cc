// SPDX-License-Identifier: Apache-2.0
// The account of graphs' memory, and the search for memory that an allocation node may reuse. Who
// holds what: nodes hold references to a GraphMemory, the program holds it while it is live, and a
// graph's list `freed` and a node's `free_after` point to each other and are always set and cleared
// together.
#include "proto/libcuda/graph/allocation.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/capture_state.h"
#include "proto/libcuda/graph/entry.h"

namespace gpuloom::graph {

std::atomic<uint32_t> graph_memory_count{0};

namespace {

// Guarded by GraphLock.
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

// Gives back what the memory is; whoever still knows the record finds no address in it.
void GiveUp(GraphMemory* memory) {
  if (memory->reserved_bytes != 0) {
    Unback(memory);
    ReleaseUnusedBlocks();
    (void)cuMemAddressFree(memory->address, memory->reserved_bytes);
    memory->reserved_bytes = 0;
  } else {
    AddReserved(-static_cast<int64_t>(memory->size_bytes));
    FreeForGraph(memory->address);
  }
  memory->address = 0;
}

// Frees the memory once neither a node nor the program has it any more.
void ReleaseUnused(GraphMemory* memory) {
  if (memory->references != 0 || memory->live) return;
  if (memory->address != 0) {
    // A context that was reset meanwhile may have given the address to another, too.
    size_t at = LowerBound(memory->address);
    while (at < allocations.all.count() && allocations.all[at] != memory) ++at;
    if (at < allocations.all.count()) allocations.all.Remove(at);
    GiveUp(memory);
  }
  free(memory);
  graph_memory_count.fetch_sub(1, std::memory_order_acq_rel);
}

// Memory of more than twice the size stays for larger requests: the driver would give a part of it.
bool Fits(const GraphMemory& memory, size_t size_bytes) {
  return memory.size_bytes >= size_bytes && memory.size_bytes / 2 <= size_bytes;
}

// The place in `freed` of the first memory of at least this size, or of this size at this address or above it.
size_t LowerBoundOf(const Growing<GraphMemory*>& freed, size_t size_bytes, CUdeviceptr address) {
  size_t first = 0, last = freed.count();
  while (first != last) {
    const size_t middle = first + (last - first) / 2;
    const GraphMemory& memory = *freed[middle];
    if (memory.size_bytes < size_bytes ||
        (memory.size_bytes == size_bytes && memory.address < address)) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// Nodes behind this one may reuse it. Without memory to note it, none does.
void OfferFreed(GraphMemory* memory, Node* node) {
  Growing<GraphMemory*>& freed = memory->home->freed;
  if (!freed.Insert(LowerBoundOf(freed, memory->size_bytes, memory->address), memory)) return;
  memory->freed_by = node;
  node->free_after = memory;
}

// It is in `freed` under its size and address, neither of which changes while it is there.
void WithdrawFreed(GraphMemory* memory) {
  if (memory->freed_by == nullptr) return;
  Growing<GraphMemory*>& freed = memory->home->freed;
  freed.Remove(LowerBoundOf(freed, memory->size_bytes, memory->address));
  memory->freed_by->free_after = nullptr;
  memory->freed_by = nullptr;
}

// Ends its reuse for good; who has it keeps it. With a node gone, or a reset context, the order
// that kept its users apart cannot be relied on.
void Settle(GraphMemory* memory) {
  WithdrawFreed(memory);
  memory->home = nullptr;
}

// The counts of the node's address, an allocation or free node's; null if its graph has noted
// nothing of it.
AddressUses* UsesOf(const Node& node) {
  const NodeParams& params = node.params;
  return RootOf(node.graph)
      ->uses.Find(params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC ? params.alloc.params.dptr
                                                              : params.free_address);
}

// Only memory of the device, without a handle for other processes, can be a node's.
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

// Addresses for a node, and memory for them.
CUresult TakeMemory(GraphMemory* memory) {
  if (memory->size_bytes < kLeastMappedBytes) {
    CUDA_RETURN_IF_ERROR(AllocateForGraph(memory->size_bytes, &memory->address));
    GraphLock lock;
    AddReserved(static_cast<int64_t>(memory->size_bytes));
    return CUDA_SUCCESS;
  }
  size_t device_bytes = 0;
  CUDA_RETURN_IF_ERROR(cuDeviceTotalMem_v2(&device_bytes, memory->device));
  if (memory->size_bytes > device_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  const uint64_t reserved_bytes =
      (memory->size_bytes + kGranuleBytes - 1) / kGranuleBytes * kGranuleBytes;
  CUDA_RETURN_IF_ERROR(cuMemAddressReserve(&memory->address, reserved_bytes, 0, 0, 0));
  memory->reserved_bytes = reserved_bytes;
  const CUresult result = WithMemory([&](Shortage* shortage) { return Back(memory, shortage); });
  if (result != CUDA_SUCCESS) (void)cuMemAddressFree(memory->address, reserved_bytes);
  return result;
}

// Memory of its own for a node, which gets the one reference. The library's allocator is called
// without the lock: it may wait for the executor. Only afterwards does the account know the
// address, so nobody can free it in between.
CUresult MakeMemory(size_t size_bytes, GraphMemory** made) {
  CUdevice device;
  CUDA_RETURN_IF_ERROR(cuCtxGetDevice(&device));
  auto* memory = static_cast<GraphMemory*>(calloc(1, sizeof(GraphMemory)));
  if (memory == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  memory->size_bytes = size_bytes;
  memory->device = device;
  memory->references = 1;
  CUresult result = TakeMemory(memory);
  if (result == CUDA_SUCCESS) {
    GraphLock lock;
    if (allocations.all.Insert(LowerBound(memory->address), memory)) {
      graph_memory_count.fetch_add(1, std::memory_order_acq_rel);
    } else {
      GiveUp(memory);
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

// A breadth-first walk back from `before`: everything that it meets is done before the new node
// runs, so what a node there has freed may be used again. It prefers the smallest memory that fits,
// and of equals the one freed nearest.
GraphMemory* TakeFreed(Graph* graph, const Edge* before, size_t count, size_t size_bytes) {
  // `freed` is sorted by size: if its smallest that is large enough does not fit, nothing does.
  // This spares most graphs the walk.
  const size_t smallest = LowerBoundOf(graph->freed, size_bytes, 0);
  if (smallest == graph->freed.count() || !Fits(*graph->freed[smallest], size_bytes)) {
    return nullptr;
  }
  const uint64_t most = kMaxScannedPerNode * graph->nodes.count();
  const uint64_t mark = NewMark();
  Growing<Node*> seen = {};  // what is done before the new node: nearest first
  const auto see = [&seen, mark](const Edge& edge) {
    if (edge.node->mark == mark) return;
    edge.node->mark = mark;
    (void)seen.Push(edge.node);  // without memory for it less is found
  };
  for (size_t i = 0; i < count; ++i) see(before[i]);
  GraphMemory* best = nullptr;
  for (size_t i = 0; i < seen.count() && graph->looked_at < most; ++i) {
    Node* node = seen[i];
    graph->looked_at += 1 + node->in.count();
    for (const Edge& edge : node->in) see(edge);
    GraphMemory* memory = node->free_after;
    if (memory == nullptr || !Fits(*memory, size_bytes) ||
        (best != nullptr && best->size_bytes <= memory->size_bytes)) {
      continue;
    }
    best = memory;
    // Nothing smaller exists.
    if (best->size_bytes == graph->freed[smallest]->size_bytes) break;
  }
  seen.Free();
  if (best != nullptr) {
    WithdrawFreed(best);
    // For the node in the making: without it the memory would be gone if the other nodes were
    // destroyed before that node is added.
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
    // The graph may have been destroyed, and its free node with it, while the lock was released:
    // the memory is not offered again.
    GraphLock lock;
    Settle(freed);
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
    Graph* graph = FindGraph(handle);
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

bool IsFreedBy(const Graph* root, const GraphMemory& memory) {
  const AddressUses* uses = root->uses.Find(memory.address);
  return uses != nullptr && uses->allocations != 0 && uses->frees >= uses->allocations;
}

void HoldMemory(GraphMemory* memory) { ++memory->references; }
void DropMemory(GraphMemory* memory) {
  --memory->references;
  ReleaseUnused(memory);
}

// Called once per node, when its edges stand. A node that has only been made (a copy, or one that
// could not be added) is in no account; `noted` tells ForgetAllocation so.
void NoteAllocation(Node* node) {
  Graph* root = RootOf(node->graph);
  bool reuses = false;
  node->noted = true;
  if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
    GraphMemory* memory = node->params.alloc.memory;
    memory->home = node->graph;
    reuses = ++memory->uses > 1;
    const CUdeviceptr address = node->params.alloc.params.dptr;
    if (address != 0) ++root->uses.Add(address)->allocations;  // 0: its context was reset
  } else if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
    ++root->uses.Add(node->params.free_address)->frees;
    GraphMemory* memory = Find(node->params.free_address);
    if (memory != nullptr && memory->home == node->graph) {
      // When several nodes allocate it in turn, the free node of the last one takes the place of
      // the one before.
      WithdrawFreed(memory);
      OfferFreed(memory, node);
    }
  } else {
    ForEachInner(*node, [&](Graph* inner) {
      root->uses.Take(&inner->uses);
      reuses = reuses || inner->reuses_memory;
    });
  }
  // These flags are never cleared: allocation and free nodes stay as long as their graph.
  for (Graph* graph = node->graph;; graph = graph->owner->graph) {
    graph->allocates = true;
    graph->reuses_memory = graph->reuses_memory || reuses;
    if (graph->owner == nullptr) return;
  }
}

void ForgetAllocation(Node* node) {
  if (!node->noted) return;  // a copy, or one that was never complete
  const bool allocates = node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC;
  AddressUses* uses = UsesOf(*node);
  if (uses != nullptr) --(allocates ? uses->allocations : uses->frees);
  GraphMemory* memory = allocates ? node->params.alloc.memory : Find(node->params.free_address);
  if (memory != nullptr && memory->home == node->graph) Settle(memory);
}

bool MayFree(const Graph* root, CUdeviceptr address) {
  const AddressUses* uses = root->uses.Find(address);
  return uses == nullptr || uses->frees < (uses->allocations > 1 ? uses->allocations : 1);
}

CUresult CheckLaunch(const Exec& exec) {
  // With the flag a launch frees what is still live and allocates it again, which changes nothing
  // here.
  if ((exec.flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH) != 0 ||
      graph_memory_count.load(std::memory_order_acquire) == 0) {
    return CUDA_SUCCESS;
  }
  for (const Node* node : exec.definition.allocations) {
    const NodeParams& params = node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC && params.alloc.memory->live) {
      return CUDA_ERROR_INVALID_VALUE;
    }
  }
  return CUDA_SUCCESS;
}

// Steps are in topological order, so memory that a graph allocates, frees and allocates again ends
// as the last of them left it.
void ApplyLaunch(const Exec& exec) {
  if (graph_memory_count.load(std::memory_order_acquire) == 0) return;
  for (const Node* node : exec.definition.allocations) {
    const NodeParams& params = node->params;
    if (params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      params.alloc.memory->live = true;
    } else if (params.type == CU_GRAPH_NODE_TYPE_MEM_FREE) {
      // It may be another graph's, or the program may have freed it already.
      GraphMemory* memory = Find(params.free_address);
      if (memory != nullptr) {
        memory->live = false;
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
  // Known, but no launch has allocated it: to the program it is no memory yet, or none any more.
  *result = memory->live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
  memory->live = false;
  ReleaseUnused(memory);
  return true;
}

void ForgetGraphMemory() {
  GraphLock lock;
  for (GraphMemory* memory : allocations.all) {
    memory->live = false;
    Settle(memory);
    if (memory->reserved_bytes != 0) {
      GiveUp(memory);
    } else {
      AddReserved(-static_cast<int64_t>(memory->size_bytes));
      // Keeps ReleaseUnused from freeing an address that went with the context, and from changing the
      // list under this loop. Nodes may still refer to the record.
      memory->address = 0;
    }
    ReleaseUnused(memory);
  }
  allocations.all.Clear();
}

void AddReserved(int64_t bytes) {
  GraphMemoryUse& use = allocations.use;
  use.bytes += static_cast<uint64_t>(bytes);  // a negative one wraps around
  use.used_high_bytes = std::max(use.used_high_bytes, use.bytes);
  use.reserved_high_bytes = std::max(use.reserved_high_bytes, use.bytes);
}
GraphMemoryUse MemoryUse() { return allocations.use; }
void ResetUsedHigh() { allocations.use.used_high_bytes = allocations.use.bytes; }
void ResetReservedHigh() { allocations.use.reserved_high_bytes = allocations.use.bytes; }

}  // namespace gpuloom::graph
