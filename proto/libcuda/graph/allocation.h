// SPDX-License-Identifier: Apache-2.0
// Memory of allocation nodes. The address is assigned when the node is created, and kept as long
// as a graph or an executable graph has the node, or the program has the memory of a launch that
// did not free it. So a launch allocates and frees nothing; it only tracks who may free.
//
// Within a graph memory is reused: an allocation node gets the memory of an earlier one of the same graph that is
// freed before anything that the new node depends on, as with the driver ("Address Reuse within a Graph" in the CUDA
// Programming Guide). When there is none left, large nodes share physical memory with other graphs' (backing.h).
//
// One GraphMemory stands for all allocation nodes that have this memory, and all their copies, and is freed with the
// last of them. Everything needs GraphLock unless stated otherwise.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/libcuda/graph/backing.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

struct GraphMemory {
  CUdeviceptr address;
  uint64_t size_bytes;
  CUdevice device;
  // What backing.h maps there. reserved_bytes: of the addresses; 0: it is backed from when the node is made.
  uint64_t reserved_bytes;
  Growing<MemoryBlock*> blocks;  // in order; empty: nothing is mapped yet
  Growing<GraphPiece> pieces;    // of them
  uint64_t mark;                 // the last search that came here, see NewMark
  uint32_t references;           // nodes, also those that are still to be added
  bool live;                     // a launch has allocated it, and it has not been freed since
  // For reuse: the graph whose nodes allocate it, null if it must not be reused; and its node that frees it after the
  // last of them, null before there is one, and while the next allocation node is being made.
  Graph* home;
  Node* freed_by;
  uint32_t uses;  // allocation nodes of `home` that have this memory
};

extern std::atomic<uint32_t> graph_memory_count;

// The most nodes and edges that are visited, per node of the graph, in search of memory for its allocation nodes;
// beyond that, nodes get memory of their own. So building a graph takes time proportional to its size. A chain of
// this length is always searched to its end.
inline constexpr uint64_t kMaxScannedPerNode = 1024;

// Finds memory for a node of `graph` that depends on `before`, and reserves it until the node is added; null: none.
[[nodiscard]] GraphMemory* TakeFreed(Graph* graph, const Edge* before, size_t count,
                                     size_t size_bytes);
// Makes a node with memory that TakeFreed found, or with its own if that is null; takes `freed` over, even if it fails.
// Without the lock. INVALID_VALUE for an invalid request, NOT_SUPPORTED for memory that is not the device's.
[[nodiscard]] CUresult MakeAllocation(const CUDA_MEM_ALLOC_NODE_PARAMS& asked, GraphMemory* freed,
                                      NodeParams* to);
// Both steps, for a node that depends on these nodes. Without the lock. Wrong handles are detected when the node is
// added.
[[nodiscard]] CUresult MakeAllocationIn(CUgraph graph, const CUgraphNode* before, size_t count,
                                        const CUDA_MEM_ALLOC_NODE_PARAMS& asked, NodeParams* to);
// The same for cuMemAllocAsync in a stream that captures.
[[nodiscard]] CUresult MakeStreamAllocation(const StreamRef& stream, size_t size_bytes,
                                            NodeParams* to);
// INVALID_VALUE if it is not an allocation node's memory. Without the lock.
[[nodiscard]] CUresult MakeFree(CUdeviceptr address, NodeParams* to);

// Whether the nodes of `root`, a graph without an owner, free the memory as often as they allocate it.
bool IsFreedBy(const Graph* root, const GraphMemory& memory);

void HoldMemory(GraphMemory* memory);
void DropMemory(GraphMemory* memory);
// Call them when a graph gets or loses an allocation or free node, or a child node that contains some. NoteAllocation
// needs room in the table of uses.
void NoteAllocation(Node* node);
void ForgetAllocation(Node* node);
// Whether a node of the graph may free the memory once more: not more often than its nodes allocate it, and once if
// another graph does.
bool MayFree(const Graph* root, CUdeviceptr address);

// Accounting of a launch: INVALID_VALUE if memory of an earlier one was not freed and the graph
// does not free it automatically. Call ApplyLaunch once the launch was made.
[[nodiscard]] CUresult CheckLaunch(const Exec& exec);
void ApplyLaunch(const Exec& exec);

// For cuMemFree and cuMemFreeAsync, before their own lookup: returns true if the address is graph
// memory, with the call's result in *result. Without the lock.
[[nodiscard]] bool FreesGraphMemory(CUdeviceptr address, CUresult* result);

// For a reset of the context, which frees all memory. Takes the lock.
void ForgetGraphMemory();

// Physical memory that graphs have. All of it counts as used, as with the driver (measured, 580.159.04): also what no
// launch has allocated yet, and what one has freed.
struct GraphMemoryUse {
  uint64_t bytes;
  uint64_t used_high_bytes;
  uint64_t reserved_high_bytes;
};
GraphMemoryUse MemoryUse();
// Some has come (or gone, if negative).
void AddReserved(int64_t bytes);
void ResetUsedHigh();
void ResetReservedHigh();

}  // namespace gpuloom::graph
