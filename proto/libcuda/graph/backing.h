// SPDX-License-Identifier: Apache-2.0
// The physical memory of large allocation nodes. It comes in blocks of a few sizes, which are mapped at the addresses of
// one node as long as there is plenty. When less than an eighth of the memory is left, further nodes get blocks that
// other graphs have, too, if there are such: a hundred graphs that take turns run in the memory of the largest of them.
// Graphs that have blocks in common never run side by side: a launch in another stream than the one before it waits
// until that is done.
//
// Only memory that every launch of its graph frees again has blocks in common with others: what a launch leaves allocated
// is the program's.
//
// Everything needs GraphLock unless stated otherwise.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/cuda/return_if_error.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

struct Exec;

// Smaller nodes have memory of their own, a part of what the program's small allocations take.
inline constexpr uint64_t kLeastMappedBytes = 1u << 20;
// Of physical memory, which is also the unit of addresses.
inline constexpr uint64_t kGranuleBytes = 2u << 20;
// So much of the memory, one part of so many, is left to the program's other allocations.
inline constexpr uint64_t kLeftPart = 8;
// The sizes of blocks, largest first. Any number of granules is at most three of each of the others, and as many of the
// largest as it takes.
inline constexpr uint64_t kBlockBytes[] = {128u << 20, 32u << 20, 8u << 20, kGranuleBytes};
inline constexpr uint32_t kBlockSizes = sizeof(kBlockBytes) / sizeof(kBlockBytes[0]);

struct MemoryBlock {
  CUmemGenericAllocationHandle handle;
  CUdevice device;
  uint32_t size;   // a place in kBlockBytes
  uint32_t users;  // how many GraphMemory have it
  bool alone;      // and no other may
  // Of launches with it, the latest's executable graph and the key of its stream. Null: there is none, or the graph is gone
  // and was the so many-th of those that went while they still ran.
  const Exec* last;
  uint64_t gone;
  uint64_t stream;
  uint64_t mark;  // the last search that came here, see NewMark
};

// What a search under the lock has found missing, to be met without it; then the search begins again.
class Shortage {
 public:
  bool any() const { return runs_ || blocks_ != 0; }
  // Whether others' blocks will do.
  bool shares() const { return shares_; }
  // Without the lock. Fails if there is no memory, or the work that it waits for has been lost.
  [[nodiscard]] CUresult Meet();

  // As a rule a graph's memory is of one device: what another one lacks is found by the next search.
  void AddBlock(CUdevice device, uint32_t size) {
    device_ = device;
    ++missing_[size];
    ++blocks_;
  }
  // Work that is queued must be done first.
  void AddRun(CUdevice device) {
    device_ = device;
    runs_ = true;
  }

 private:
  [[nodiscard]] CUresult Make();

  CUdevice device_ = 0;
  uint32_t missing_[kBlockSizes] = {};
  uint32_t blocks_ = 0;
  bool runs_ = false;
  bool shares_ = false;
};

// Calls `act(Shortage*)` with the lock held, and again as long as it finds memory missing.
template <typename Act>
[[nodiscard]] CUresult WithMemory(Act act) {
  Shortage shortage;
  for (;;) {
    CUDA_RETURN_IF_ERROR(shortage.Meet());
    GraphLock lock;
    const CUresult result = act(&shortage);
    if (result != CUDA_SUCCESS || !shortage.any()) return result;
  }
}

// Maps blocks for one node's memory that has none. Nothing is changed if that sets *shortage.
[[nodiscard]] CUresult Back(GraphMemory* memory, Shortage* shortage);
// Before the graph is instantiated or an executable graph is updated from it: separates the memory of its nodes from each
// other's, and what its launches leave allocated from everybody's. Nothing is changed if that sets *shortage.
[[nodiscard]] CUresult BackGraph(const Graph* graph, Shortage* shortage);
// Before a launch in the stream: sets *shortage if others may still run with the graph's memory.
void CheckTurn(const Exec& exec, const StreamRef& stream, Shortage* shortage);
// Call it once the launch was made.
void NoteTurn(const Exec& exec, const StreamRef& stream);

// Unmaps what is mapped, once all work queued so far is done.
void Unback(GraphMemory* memory);
// Gives back the blocks that nobody has.
void ReleaseUnusedBlocks();
// The executable graph goes; launches of it may still run.
void ForgetTurns(const Exec& exec);
// A later stream with its key is another one. Takes the lock.
void ForgetTurnsIn(const StreamRef& stream);

}  // namespace gpuloom::graph
