// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/pool.h"

#include <map>
#include <utility>

#include "agent/softgpu/driver/address_table.h"
#include "agent/softgpu/driver/pool_file.h"
#include "agent/softgpu/driver/registry.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {
namespace {

// Held over the look-ups and changes of both tables; a pool's own lock is taken under it
// (docs/design/locks.md).
struct Pools {
  Mutex mutex;
  std::map<const Device*, std::shared_ptr<MemoryPool>> defaults GPULOOM_GUARDED_BY(mutex);
  std::map<const Device*, std::shared_ptr<MemoryPool>> current GPULOOM_GUARDED_BY(mutex);
};

Pools& AllPools() {
  static auto* pools = new Pools;  // never destroyed: calls may come while the process exits
  return *pools;
}

}  // namespace

PoolShare::PoolShare(std::shared_ptr<MemoryPool> from, uint64_t bytes)
    : pool(std::move(from)), size_bytes(bytes) {
  // The high mark is raised in a loop: another thread may raise or reset it meanwhile.
  const uint64_t used = pool->used_bytes.fetch_add(bytes) + bytes;
  uint64_t high = pool->used_high_bytes.load();
  while (high < used && !pool->used_high_bytes.compare_exchange_weak(high, used)) {
  }
}

PoolShare::~PoolShare() { pool->used_bytes.fetch_sub(size_bytes); }

std::shared_ptr<MemoryPool> DefaultPool(Device& device) {
  Pools& pools = AllPools();
  const MutexLock lock(pools.mutex);
  std::shared_ptr<MemoryPool>& pool = pools.defaults[&device];
  if (pool == nullptr) {
    pool = std::make_shared<MemoryPool>(device);
    pool->is_default = true;
    Registry<MemoryPool>::Instance().Add(pool);
  }
  return pool;
}

std::shared_ptr<MemoryPool> CurrentPool(Device& device) {
  Pools& pools = AllPools();
  {
    const MutexLock lock(pools.mutex);
    const auto found = pools.current.find(&device);
    if (found != pools.current.end()) return found->second;
  }
  // Not under the lock, which DefaultPool takes.
  return DefaultPool(device);
}

void SetCurrentPool(Device& device, std::shared_ptr<MemoryPool> pool) {
  Pools& pools = AllPools();
  const MutexLock lock(pools.mutex);
  if (pool == nullptr) {
    pools.current.erase(&device);
  } else {
    pools.current[&device] = std::move(pool);
  }
}

std::shared_ptr<MemoryPool> OpenPool(Device& device, std::shared_ptr<PoolFile> file) {
  const MutexLock lock(AllPools().mutex);
  // The file's number in the system tells that two descriptors are of one pool: an importer gets
  // the same pool for both, and destroys it as often as it imported it.
  for (const auto& pool : Registry<MemoryPool>::Instance().All()) {
    if (!pool->imported || pool->file->name() != file->name()) continue;
    ++pool->imports;
    return pool;
  }
  auto pool = std::make_shared<MemoryPool>(device);
  pool->file = std::move(file);
  pool->imported = true;
  pool->imports = 1;
  Registry<MemoryPool>::Instance().Add(pool);
  return pool;
}

std::optional<Region> FindImported(const MemoryPool& pool, uint64_t offset_bytes) {
  const auto mapped = pool.mapped.find(offset_bytes);
  if (mapped == pool.mapped.end()) return std::nullopt;
  auto region = AddressTable::Instance().FindRegion(mapped->second);
  // The address may have been freed and used again since: it must be the same piece of the same
  // file.
  const bool same = region && region->begin == mapped->second && !region->leaving &&
                    region->piece != nullptr && !region->piece->ours &&
                    region->piece->file == pool.file && region->piece->offset_bytes == offset_bytes;
  return same ? region : std::nullopt;
}

CUresult DestroyPool(CUmemoryPool handle) {
  const MutexLock lock(AllPools().mutex);
  const auto pool = FindPool(handle);
  if (pool == nullptr || pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  if (pool->imported) {
    const MutexLock pool_lock(pool->mutex);
    // An allocation of the pool is still mapped here: CUDA wants it freed first.
    for (const auto& [offset_bytes, address] : pool->mapped) {
      if (FindImported(*pool, offset_bytes)) return CUDA_ERROR_INVALID_VALUE;
    }
    if (--pool->imports != 0) return CUDA_SUCCESS;
  }
  Registry<MemoryPool>::Instance().Take(handle);
  // Devices fall back to their default pool, as in CUDA.
  const auto current = AllPools().current.find(&pool->device);
  if (current != AllPools().current.end() && current->second == pool) {
    AllPools().current.erase(current);
  }
  return CUDA_SUCCESS;
}

std::shared_ptr<MemoryPool> FindPool(CUmemoryPool handle) {
  return Registry<MemoryPool>::Instance().Find(handle);
}

CUresult GetAttribute(const MemoryPool& pool, CUmemPool_attribute attribute, void* value) {
  // The three switches are numbered from 1. They change nothing here: nothing is reused.
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = pool.reuse[attribute - 1];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *static_cast<cuuint64_t*>(value) = pool.release_threshold_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:  // nothing is kept beyond what is used
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *static_cast<cuuint64_t*>(value) = pool.used_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *static_cast<cuuint64_t*>(value) = pool.used_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAttribute(MemoryPool& pool, CUmemPool_attribute attribute, const void* value) {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool.reuse[attribute - 1] = *static_cast<const int*>(value) != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool.release_threshold_bytes = *static_cast<const cuuint64_t*>(value);
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      // As in CUDA, a high mark can only be reset, to the amount in use at that moment.
      if (*static_cast<const cuuint64_t*>(value) != 0) return CUDA_ERROR_INVALID_VALUE;
      pool.used_high_bytes = pool.used_bytes.load();
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpuloom::softgpu
