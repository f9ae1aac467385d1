// SPDX-License-Identifier: Apache-2.0
#include "proto/libcuda/graph/backing.h"

#include <stdlib.h>

#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/capture_state.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/graph.h"

namespace gpuloom::graph {
namespace {

// Guarded by GraphLock.
constinit Growing<MemoryBlock*> blocks;
// How many executable graphs have gone while they still ran, and how many of them are known to be done.
constinit uint64_t gone = 0;
constinit uint64_t gone_done = 0;

void NoteDone(uint64_t count) {
  if (gone_done < count) gone_done = count;
}

uint64_t BytesOf(const MemoryBlock& block) { return kBlockBytes[block.size]; }

// Without the lock.
CUresult MakeBlock(CUdevice device, uint32_t size) {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = device;
  CUmemGenericAllocationHandle handle;
  CUDA_RETURN_IF_ERROR(cuMemCreate(&handle, kBlockBytes[size], &properties, 0));
  auto* block = static_cast<MemoryBlock*>(calloc(1, sizeof(MemoryBlock)));
  if (block != nullptr) {
    block->handle = handle;
    block->device = device;
    block->size = size;
    GraphLock lock;
    if (blocks.Push(block)) {
      AddReserved(static_cast<int64_t>(BytesOf(*block)));
      return CUDA_SUCCESS;
    }
  }
  free(block);
  (void)cuMemRelease(handle);
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// Whether enough would be left if these blocks were made. Without the lock.
bool IsPlenty(const uint32_t (&missing)[kBlockSizes]) {
  size_t free_bytes = 0, all_bytes = 0;
  if (cuMemGetInfo_v2(&free_bytes, &all_bytes) != CUDA_SUCCESS) return true;
  uint64_t bytes = all_bytes / kLeftPart;
  for (uint32_t size = 0; size < kBlockSizes; ++size) bytes += missing[size] * kBlockBytes[size];
  return bytes <= free_bytes;
}

// Whether all launches with the block are done.
bool IsIdle(const MemoryBlock& block) {
  return block.last == nullptr ? block.gone <= gone_done : DriverDone(*block.last);
}

// Whether a launch in the stream comes after all others with the block: launches of one executable graph never overlap,
// wherever they are.
bool IsInTurn(const MemoryBlock& block, const Exec& exec, const StreamRef& stream) {
  return block.last == &exec || block.stream == stream.key || IsIdle(block);
}

// In place of what is mapped there. Leaves nothing mapped if it fails.
CUresult Map(GraphMemory* memory, const Growing<MemoryBlock*>& list, bool alone) {
  Unback(memory);
  for (const MemoryBlock* block : list) {
    if (!memory->pieces.Push({block->handle, BytesOf(*block)})) {
      memory->pieces.Free();
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  const CUresult result = MapForGraph(memory->address, memory->size_bytes, memory->device,
                                      memory->pieces.begin(), memory->pieces.count());
  if (result != CUDA_SUCCESS) {
    memory->pieces.Free();
    return result;
  }
  for (MemoryBlock* block : list) {
    ++block->users;
    block->alone = alone;
  }
  memory->blocks = list;
  return CUDA_SUCCESS;
}

// Blocks to be mapped for some memory.
class Plans {
 public:
  // What has `mark` is another memory's of the same graph.
  Plans(uint64_t mark, Shortage* shortage) : mark_(mark), shortage_(shortage) {}
  ~Plans() {
    for (Plan& plan : plans_) plan.blocks.Free();
    plans_.Free();
  }
  Plans(const Plans&) = delete;
  Plans& operator=(const Plans&) = delete;

  [[nodiscard]] CUresult Add(GraphMemory* memory, bool alone) {
    Plan plan = {memory, alone, {}};
    bool room = true;
    uint64_t left_bytes = memory->reserved_bytes;
    for (uint32_t size = 0; size < kBlockSizes; ++size) {
      for (; left_bytes >= kBlockBytes[size]; left_bytes -= kBlockBytes[size]) {
        MemoryBlock* block = Choose(memory->device, size, alone);
        if (block == nullptr) {
          shortage_->AddBlock(memory->device, size);
        } else {
          room = room && plan.blocks.Push(block);
        }
      }
    }
    if (room && plans_.Push(plan)) return CUDA_SUCCESS;
    plan.blocks.Free();
    return CUDA_ERROR_OUT_OF_MEMORY;
  }

  [[nodiscard]] CUresult Make() {
    for (Plan& plan : plans_) {
      CUDA_RETURN_IF_ERROR(Map(plan.memory, plan.blocks, plan.alone));
      plan.blocks = {};  // they are the memory's now
    }
    ReleaseUnusedBlocks();
    return CUDA_SUCCESS;
  }

 private:
  struct Plan {
    GraphMemory* memory;
    bool alone;
    Growing<MemoryBlock*> blocks;
  };

  // The one with the fewest users.
  MemoryBlock* Choose(CUdevice device, uint32_t size, bool alone) {
    MemoryBlock* best = nullptr;
    for (MemoryBlock* block : blocks) {
      if (block->device != device || block->size != size || block->mark == mark_ || block->alone ||
          (block->users != 0 && (alone || !shortage_->shares())) ||
          (best != nullptr && best->users <= block->users)) {
        continue;
      }
      best = block;
    }
    if (best != nullptr) best->mark = mark_;
    return best;
  }

  const uint64_t mark_;
  Shortage* const shortage_;
  Growing<Plan> plans_;
};

// Calls `visit` with all large memory that the graph's nodes allocate, once with each.
template <typename F>
void ForEachMemory(const Graph* graph, uint64_t mark, const F& visit) {
  for (const Node* node : graph->nodes) {
    if (node->params.type == CU_GRAPH_NODE_TYPE_MEM_ALLOC) {
      GraphMemory* memory = node->params.alloc.memory;
      if (memory->reserved_bytes == 0 || memory->mark == mark) continue;
      memory->mark = mark;
      visit(memory);
    }
    ForEachInner(*node, [&](const Graph* inner) { ForEachMemory(inner, mark, visit); });
  }
}

// Calls `visit` with each block that launches of the executable graph use.
template <typename F>
void ForEachBlock(const Exec& exec, const F& visit) {
  for (const Node* node : exec.definition.allocations) {
    if (node->params.type != CU_GRAPH_NODE_TYPE_MEM_ALLOC) continue;
    for (MemoryBlock* block : node->params.alloc.memory->blocks) visit(block);
  }
}

}  // namespace

CUresult Shortage::Meet() {
  if (runs_) {
    uint64_t gone_before;
    {
      GraphLock lock;
      gone_before = gone;
    }
    CUDA_RETURN_IF_ERROR(FinishWork(device_));
    GraphLock lock;
    NoteDone(gone_before);
  }
  runs_ = false;
  if (blocks_ == 0) return CUDA_SUCCESS;
  blocks_ = 0;
  const CUresult result = shares_ || IsPlenty(missing_) ? Make() : CUDA_ERROR_OUT_OF_MEMORY;
  for (uint32_t& missing : missing_) missing = 0;
  // Whatever others have will do, then.
  const bool again = result == CUDA_ERROR_OUT_OF_MEMORY && !shares_;
  shares_ = shares_ || again;
  return again ? CUDA_SUCCESS : result;
}

// All or none.
CUresult Shortage::Make() {
  CUresult result = CUDA_SUCCESS;
  for (uint32_t size = 0; size < kBlockSizes; ++size) {
    for (uint32_t i = 0; i < missing_[size] && result == CUDA_SUCCESS; ++i) {
      result = MakeBlock(device_, size);
    }
  }
  if (result != CUDA_SUCCESS) {
    GraphLock lock;
    ReleaseUnusedBlocks();
  }
  return result;
}

CUresult Back(GraphMemory* memory, Shortage* shortage) {
  Plans plans(NewMark(), shortage);
  CUDA_RETURN_IF_ERROR(plans.Add(memory, false));
  return shortage->any() ? CUDA_SUCCESS : plans.Make();
}

CUresult BackGraph(const Graph* graph, Shortage* shortage) {
  if (blocks.count() == 0 || !HasAllocations(graph)) return CUDA_SUCCESS;
  const uint64_t mark = NewMark();
  Plans plans(mark, shortage);
  CUresult result = CUDA_SUCCESS;
  Growing<GraphMemory*> replaced;
  // What fits stays, and is marked before others choose.
  ForEachMemory(graph, mark, [&](GraphMemory* memory) {
    const bool alone = !IsFreedBy(graph, *memory);
    bool fits = memory->blocks.count() != 0;
    for (const MemoryBlock* block : memory->blocks) {
      fits = fits && block->mark != mark && (!alone || block->users == 1);
    }
    if (!fits) {
      if (!replaced.Push(memory)) result = CUDA_ERROR_OUT_OF_MEMORY;
      return;
    }
    for (MemoryBlock* block : memory->blocks) {
      block->mark = mark;
      block->alone = alone;
    }
  });
  for (GraphMemory* memory : replaced) {
    if (result == CUDA_SUCCESS) result = plans.Add(memory, !IsFreedBy(graph, *memory));
  }
  replaced.Free();
  return result != CUDA_SUCCESS || shortage->any() ? result : plans.Make();
}

void CheckTurn(const Exec& exec, const StreamRef& stream, Shortage* shortage) {
  if (blocks.count() == 0) return;
  ForEachBlock(exec, [&](const MemoryBlock* block) {
    if (!IsInTurn(*block, exec, stream)) shortage->AddRun(block->device);
  });
}

void NoteTurn(const Exec& exec, const StreamRef& stream) {
  if (blocks.count() == 0) return;
  ForEachBlock(exec, [&](MemoryBlock* block) {
    block->last = &exec;
    block->stream = stream.key;
  });
}

void Unback(GraphMemory* memory) {
  if (memory->blocks.count() == 0) return;
  // Fails only when nothing runs any more.
  (void)FinishWork(memory->device);
  NoteDone(gone);
  UnmapForGraph(memory->address, memory->pieces.begin(), memory->pieces.count());
  for (MemoryBlock* block : memory->blocks) {
    --block->users;
    block->alone = false;
    block->last = nullptr;
  }
  memory->blocks.Free();
  memory->pieces.Free();
}

void ReleaseUnusedBlocks() {
  for (size_t i = blocks.count(); i-- > 0;) {
    MemoryBlock* block = blocks[i];
    if (block->users != 0) continue;
    blocks.Remove(i);
    // Fails only when the memory has gone with the session.
    (void)cuMemRelease(block->handle);
    AddReserved(-static_cast<int64_t>(BytesOf(*block)));
    free(block);
  }
}

void ForgetTurns(const Exec& exec) {
  bool any = false;
  for (MemoryBlock* block : blocks) {
    if (block->last != &exec) continue;
    block->last = nullptr;
    // Without a driver its context was reset, and all its work is done.
    if (exec.driver != nullptr && !DriverDone(exec)) block->gone = gone + 1;
    any = any || block->gone > gone;
  }
  if (any) ++gone;
}

void ForgetTurnsIn(const StreamRef& stream) {
  GraphLock lock;
  for (MemoryBlock* block : blocks) {
    if (block->stream == stream.key) block->stream = kNoStream;
  }
}

}  // namespace gpuloom::graph
