// SPDX-License-Identifier: Apache-2.0
// Memory pools: what cuMemAllocAsync takes from. Memory goes back to the device when it is freed,
// so a pool here is a name, its attributes and the amount of memory that came from it. A Registry
// keeps pools until they are destroyed; allocations share ownership. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "agent/softgpu/driver/device.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class PoolFile;
struct Region;

struct MemoryPool {
  explicit MemoryPool(Device& of) : device(of) {}

  CUmemAllocationHandleType handles = CU_MEM_HANDLE_TYPE_NONE;  // what it can be exported as
  // If processes share the pool: where its memory lies. Otherwise nullptr.
  std::shared_ptr<PoolFile> file;
  bool imported = false;
  int imports = 0;  // how often an imported pool was imported; guarded by the pools' table
  // In an imported pool: where allocations in the file were mapped, which may have been freed since.
  Mutex mutex;
  std::map<uint64_t, CUdeviceptr> mapped GPULOOM_GUARDED_BY(mutex);

  Device& device;
  bool is_default = false;
  std::atomic<uint64_t> used_bytes{0};
  std::atomic<uint64_t> used_high_bytes{0};
  std::atomic<uint64_t> release_threshold_bytes{0};
  std::atomic<int> reuse[3] = {1, 1, 1};  // the three CU_MEMPOOL_ATTR_REUSE_* switches
};

// One allocation's part of its pool's counters; returned when the allocation is gone.
struct PoolShare {
  PoolShare(std::shared_ptr<MemoryPool> from, uint64_t size_bytes);
  ~PoolShare();
  PoolShare(const PoolShare&) = delete;
  PoolShare& operator=(const PoolShare&) = delete;

  const std::shared_ptr<MemoryPool> pool;
  const uint64_t size_bytes;
};

// Made on first demand, never destroyed.
std::shared_ptr<MemoryPool> DefaultPool(Device& device);
// The pool that cuMemAllocAsync uses: the default one until another is set; setting nullptr
// restores the default.
std::shared_ptr<MemoryPool> CurrentPool(Device& device);
void SetCurrentPool(Device& device, std::shared_ptr<MemoryPool> pool);
// The pool for a file that another process has made, or the one that an earlier import has opened.
std::shared_ptr<MemoryPool> OpenPool(Device& device, std::shared_ptr<PoolFile> file);
// INVALID_VALUE for no pool, the default one, and an imported one in use.
[[nodiscard]] CUresult DestroyPool(CUmemoryPool handle);
// What an import has mapped at that offset of the file and nobody has freed.
std::optional<Region> FindImported(const MemoryPool& pool, uint64_t offset_bytes)
    GPULOOM_REQUIRES(pool.mutex);
// The living pool that a handle names.
std::shared_ptr<MemoryPool> FindPool(CUmemoryPool handle);

[[nodiscard]] CUresult GetAttribute(const MemoryPool& pool, CUmemPool_attribute attribute,
                                    void* value);
[[nodiscard]] CUresult SetAttribute(MemoryPool& pool, CUmemPool_attribute attribute,
                                    const void* value);

}  // namespace gpuloom::softgpu
