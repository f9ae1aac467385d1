// SPDX-License-Identifier: Apache-2.0
// One block of a grid that runs: its warps, shared memory and barriers.
//
// Owned by the Runner in grid.cc and used again for block after block; one thread. Turn() runs every warp for a while
// and returns, so several blocks can be resident on one thread (clusters, cooperative grids).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "agent/softgpu/exec/machine/grid.h"
#include "agent/softgpu/exec/machine/range_cache.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {

// What all blocks that one thread runs of a grid share.
struct GridRun {
  GridRun(const Grid& g, const AddressSpace& m, const std::atomic<bool>& s)
      : grid(g), memory(m), ranges(m), stop(s) {}

  // What the handle of a texture or surface stands for; nullptr: nothing.
  [[nodiscard]] std::shared_ptr<const Texture> FindTexture(uint64_t handle) const {
    const BoundImage* bound = FindReference(handle);
    return bound != nullptr ? bound->texture : memory.FindTexture(handle);
  }
  [[nodiscard]] std::shared_ptr<const Image> FindSurface(uint64_t handle) const {
    const BoundImage* bound = FindReference(handle);
    return bound != nullptr ? bound->surface : memory.FindSurface(handle);
  }

  const Grid& grid;
  const AddressSpace& memory;
  RangeCache ranges;
  const std::atomic<bool>& stop;
  Outcome outcome;
  std::vector<std::byte> params;     // a private, aligned copy
  uint32_t dynamic_shared_base = 0;  // offset of dynamic shared memory
  uint32_t shared_bytes = 0;
  uint64_t grid_id = 0;
  uint64_t instructions = 0;  // counted for whole warps
  bool waited = false;        // some warp's turn was only a wait: other threads may go first
  // A cooperative grid's barrier, as cooperative_groups knows it: its size in bytes, then a word in which
  // the blocks are counted. Kernels find its address in %envreg1 (high half) and %envreg2.
  alignas(8) uint32_t grid_barrier[2] = {sizeof(grid_barrier), 0};

 private:
  // nullptr when the handle is not a reference of the grid's module.
  [[nodiscard]] const BoundImage* FindReference(uint64_t handle) const {
    const uint64_t number = handle & ~kWindowMask;
    return (handle & kWindowMask) == kReferenceWindow && grid.references != nullptr &&
                   number < grid.references->size()
               ? &(*grid.references)[number]
               : nullptr;
  }
};

struct Barrier {
  uint32_t waiting[kMaxThreadsPerBlock / kLanes] = {};  // lanes of each warp that wait
  uint32_t waiting_threads = 0;
  uint32_t passed = 0;      // threads that arrived without waiting
  uint32_t expected = 0;    // threads; 0 = all that live
  uint32_t true_count = 0;  // of bar.red's predicates
  bool all_true = true;
  struct Result {  // what bar.red writes when the barrier opens
    uint32_t warp;
    uint32_t lane;
    const Instr* instr;
  };
  std::vector<Result> results;
};

// What a barrier instruction does, kept in Instr::extra.
enum BarrierOp : uint16_t {
  kBarrierSync,
  kBarrierArrive,
  kBarrierPopc,
  kBarrierAnd,
  kBarrierOr,
  kBarrierOpMask = 0x0f,
  kBarrierHasCount = 0x10,
  kBarrierNegatesPredicate = 0x20,
};

class Block {
 public:
  explicit Block(GridRun& run);

  void Start(Dim3 index);
  // Runs each warp for a while. False when no warp could do anything.
  bool Turn();
  [[nodiscard]] bool done() const { return live_warps_ == 0; }

  // --- for Warp ---------------------------------------------------------------------------------
  // `lanes` of the warp arrive at barrier `number`; those that wait have been put aside before. False: the number or
  // the count is not allowed.
  bool Arrive(Warp& warp, const Instr& in, uint32_t lanes, uint32_t number, uint32_t count);
  // Call when lanes of the warp have ended: barriers that wait for all may open.
  void OnExit(const Warp& warp, uint32_t lanes);

  [[nodiscard]] GridRun& run() { return run_; }
  [[nodiscard]] std::byte* shared() { return shared_.get(); }
  [[nodiscard]] uint32_t shared_bytes() const { return run_.shared_bytes; }
  [[nodiscard]] const Dim3& index() const { return index_; }
  [[nodiscard]] uint32_t warp_count() const { return static_cast<uint32_t>(warps_.size()); }
  // The blocks of the cluster by rank, including this one. Without a cluster a block is the only one of its own.
  std::vector<Block*> cluster;
  uint32_t cluster_rank = 0;
  // Arrivals at the cluster's barrier, counted in the block of rank 0.
  uint32_t cluster_arrived = 0;
  uint64_t cluster_phase = 0;
  void OpenClusterBarrierIfFull();

 private:
  void OpenIfFull(uint32_t number);
  void Open(uint32_t number);

  GridRun& run_;
  Dim3 index_;
  std::unique_ptr<std::byte[]> shared_;
  std::vector<std::unique_ptr<Warp>> warps_;
  uint32_t live_warps_ = 0;
  uint32_t live_threads_ = 0;
  Barrier barriers_[16];
  uint32_t barriers_in_use_ = 0;  // a bit for each
};

}  // namespace gpuloom::softgpu
