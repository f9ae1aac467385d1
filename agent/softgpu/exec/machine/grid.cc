// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/exec/machine/grid.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "agent/softgpu/exec/machine/block.h"

namespace gpuloom::softgpu {
namespace {

Outcome Refuse(const Grid& grid, const char* why) {
  Outcome outcome;
  outcome.kind = Outcome::kIllegalInstruction;
  outcome.detail = "kernel " + (grid.kernel != nullptr ? grid.kernel->name : "?") + ": " + why;
  return outcome;
}

const char* FindMistake(const Grid& grid) {
  if (grid.module == nullptr || grid.kernel == nullptr || grid.kernel->code == nullptr) {
    return "there is no code to run";
  }
  const Dim3& block = grid.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (block.x > kMaxThreadsPerBlock || block.y > kMaxThreadsPerBlock || threads == 0 ||
      threads > kMaxThreadsPerBlock) {
    return "a block has 1 to 1024 threads";
  }
  if (uint64_t{grid.kernel->static_shared_bytes} + grid.dynamic_shared_bytes >
      kMaxSharedBytesPerBlock) {
    return "too much shared memory";
  }
  const Dim3& cluster = grid.cluster;
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0 ||
      uint64_t{cluster.x} * cluster.y * cluster.z > 16 || grid.grid.x % cluster.x != 0 ||
      grid.grid.y % cluster.y != 0 || grid.grid.z % cluster.z != 0) {
    return "the cluster does not divide the grid";
  }
  if (grid.params == nullptr && grid.kernel->param_bytes != 0) return "there are no parameters";
  return nullptr;
}

// Runs the blocks that are resident until all of them are done.
void RunResident(GridRun& run, std::vector<std::unique_ptr<Block>>& blocks, size_t count) {
  while (true) {
    bool progress = false;
    bool done = true;
    for (size_t i = 0; i < count; ++i) {
      if (blocks[i]->done()) continue;
      done = false;
      progress |= blocks[i]->Turn();
      if (run.outcome.kind != Outcome::kOk) return;
      if (run.stop.load(std::memory_order_relaxed)) {
        run.outcome.kind = Outcome::kStopped;
        return;
      }
      run.ranges.Refresh();
    }
    if (run.waited) {
      run.waited = false;
      std::this_thread::yield();
    }
    if (done) return;
    if (!progress) {
      run.outcome.kind = Outcome::kDeadlock;
      run.outcome.detail =
          "kernel " + run.grid.kernel->name + ": every thread waits at a barrier for another one";
      return;
    }
  }
}

Dim3 Split(uint64_t linear, const Dim3& size) {
  return {static_cast<uint32_t>(linear % size.x), static_cast<uint32_t>(linear / size.x % size.y),
          static_cast<uint32_t>(linear / size.x / size.y)};
}

void RunBlocks(GridRun& run) {
  const Grid& grid = run.grid;
  const Dim3& size = grid.grid;
  const Dim3& cluster = grid.cluster;
  const uint64_t total = uint64_t{size.x} * size.y * size.z;
  const uint64_t per_cluster = uint64_t{cluster.x} * cluster.y * cluster.z;
  const uint64_t resident = grid.cooperative ? total : per_cluster;
  std::vector<std::unique_ptr<Block>> blocks;
  for (uint64_t i = 0; i < resident && i < total; ++i)
    blocks.push_back(std::make_unique<Block>(run));
  const Dim3 clusters = {size.x / cluster.x, size.y / cluster.y, size.z / cluster.z};
  for (uint64_t first = 0; first < total; first += resident) {
    for (uint64_t i = 0; i < resident; ++i) {
      const Dim3 of = Split((first + i) / per_cluster, clusters);
      const Dim3 in = Split((first + i) % per_cluster, cluster);
      Block& block = *blocks[i];
      block.Start({of.x * cluster.x + in.x, of.y * cluster.y + in.y, of.z * cluster.z + in.z});
      block.cluster.clear();
      block.cluster_rank = static_cast<uint32_t>(i % per_cluster);
      for (uint64_t peer = 0; peer < per_cluster; ++peer) {
        block.cluster.push_back(blocks[i / per_cluster * per_cluster + peer].get());
      }
    }
    RunResident(run, blocks, resident);
    if (run.outcome.kind != Outcome::kOk) return;
  }
}

}  // namespace

Outcome Run(const Grid& grid, const AddressSpace& memory, const std::atomic<bool>& stop) {
  if (const char* mistake = FindMistake(grid)) return Refuse(grid, mistake);
  static std::atomic<uint64_t> next_grid_id{1};
  try {
    GridRun run(grid, memory, stop);
    run.grid_id = next_grid_id.fetch_add(1, std::memory_order_relaxed);
    run.params.resize(grid.kernel->param_bytes);
    if (grid.kernel->param_bytes != 0) {
      std::memcpy(run.params.data(), grid.params, grid.kernel->param_bytes);
    }
    const uint32_t align = grid.module->program().dynamic_shared_align_bytes;
    run.dynamic_shared_base = (grid.kernel->static_shared_bytes + align - 1) / align * align;
    run.shared_bytes = grid.dynamic_shared_bytes == 0
                           ? grid.kernel->static_shared_bytes
                           : run.dynamic_shared_base + grid.dynamic_shared_bytes;
    RunBlocks(run);
    return run.outcome;
  } catch (const std::bad_alloc&) {
    Outcome outcome;
    outcome.kind = Outcome::kOutOfMemory;
    outcome.detail = "kernel " + grid.kernel->name + ": the host has no memory for its blocks";
    return outcome;
  }
}

}  // namespace gpuloom::softgpu
