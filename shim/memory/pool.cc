// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/pool.h"

#include "proto/cuda/return_if_error.h"
#include "shim/memory/address_space.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/free_pieces.h"
#include "shim/memory/migration.h"
#include "shim/memory/pool_table.h"
#include "shim/session/session.h"

namespace gpuloom {

constinit Pools pools;

namespace {

constexpr uint64_t kLargestChunkBytes = 32u << 20;  // the real driver's chunk

uint64_t RoundUp(uint64_t value, uint64_t step) { return (value + step - 1) / step * step; }

// With `exported` false, ignores chunks that other processes can name.
void TrimLocked(Pool* pool, uint64_t keep_bytes, bool exported) GPULOOM_REQUIRES(pools.lock) {
  uint64_t held_bytes = pool->reserved_bytes - (exported ? 0 : pool->exported_bytes);
  if (held_bytes <= keep_bytes || pool->imported) return;
  JoinSettledPiecesLocked(pool);
  // The largest first: as few chunks as possible, and so as few commands.
  for (int bin = kPieceBins; bin-- > 0 && held_bytes > keep_bytes;) {
    for (Piece* piece = pool->free_pieces[bin]; piece != nullptr && held_bytes > keep_bytes;) {
      Piece* next = piece->next;
      if (IsWholeChunk(piece) && HasSettledLocked(piece)) {
        const size_t i = FindAtOrBefore(pool->chunks, piece->begin);
        if (pool->chunks[i].number != 0) {
          if (!exported) {
            piece = next;
            continue;
          }
          pool->exported_bytes -= piece->size_bytes;
        }
        pool->chunks.Remove(i);
        pool->reserved_bytes -= piece->size_bytes;
        held_bytes -= piece->size_bytes;
        UnlistPieceLocked(piece);
        GiveDeviceMemory(piece->begin, piece->size_bytes, piece->stream, wire::Ticket{0});
        pools.pieces.Give(pools.lock, piece);
      }
      piece = next;
    }
  }
  // A destroyed pool goes with its last chunk.
  if (pool->destroyed && pool->reserved_bytes == 0) GivePoolLocked(pool);
}

// At a synchronization down to the thresholds, or `everything` that is unused when memory has run
// out.
void TrimAllLocked(bool everything) GPULOOM_REQUIRES(pools.lock) {
  for (uint32_t id = 1; id <= pools.table.used(); ++id) {
    Pool* pool = pools.table.At(id);
    if (pool == nullptr) continue;
    TrimLocked(pool, everything ? 0 : pool->release_threshold_bytes, everything || pool->destroyed);
  }
}

// Whatever came back, there would not be so much: it is asked for once, so that one refusal is counted.
bool IsBeyondAll(uint64_t size_bytes) { return size_bytes > session.device().total_memory_bytes; }

// For a size beyond all addresses, so that no sum below can overflow. The node refuses it, and
// counts that.
CUresult RefuseBeyondAddresses(const Pool& pool, uint64_t size_bytes) {
  if (pool.max_bytes != 0 && size_bytes > pool.max_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  uint64_t begin = 0;
  CUDA_RETURN_IF_ERROR(TakeDeviceMemory(size_bytes, &begin));
  GiveDeviceMemory(begin, size_bytes, wire::kLegacyStream, wire::Ticket{0});
  return CUDA_ERROR_OUT_OF_MEMORY;
}

// A chunk for at least `size_bytes`, by what there is in turn: as large as the pool deserves; no
// larger than needed; after all pools have returned what they do not use; and after managed memory
// has left the device. `refused`: whether the node has refused this call of the program already; it
// is asked again only with a chance of success.
CUresult AddChunkLocked(Pool* pool, uint64_t size_bytes, bool* refused)
    GPULOOM_REQUIRES(pools.lock) {
  // Chunks grow with the pool, so that a program with little memory in it holds little.
  uint64_t chunk_bytes = RoundUp(pool->reserved_bytes / 2, kGranuleBytes);
  if (chunk_bytes > kLargestChunkBytes) chunk_bytes = kLargestChunkBytes;
  const uint64_t needed_bytes = RoundUp(size_bytes, kGranuleBytes);
  if (chunk_bytes < needed_bytes) chunk_bytes = needed_bytes;
  if (pool->max_bytes != 0 &&
      (chunk_bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - chunk_bytes)) {
    chunk_bytes = needed_bytes;
    if (chunk_bytes > pool->max_bytes || pool->reserved_bytes > pool->max_bytes - chunk_bytes) {
      return CUDA_ERROR_OUT_OF_MEMORY;
    }
  }
  uint64_t begin = 0;
  const auto ask = [&] {
    if (*refused && !QuotaHasRoomAtLast(chunk_bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = TakeDeviceMemory(chunk_bytes, &begin);
    if (result == CUDA_ERROR_OUT_OF_MEMORY) *refused = true;
    return result;
  };
  // Nobody has called for more than is needed, so nothing is to be refused for it.
  if (chunk_bytes != needed_bytes && !QuotaHasRoom(chunk_bytes)) chunk_bytes = needed_bytes;
  CUresult result = ask();
  if (result == CUDA_ERROR_OUT_OF_MEMORY && chunk_bytes != needed_bytes) {
    chunk_bytes = needed_bytes;
    result = ask();
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !IsBeyondAll(needed_bytes)) {
    TrimAllLocked(/*everything=*/true);
    result = ask();
    if (result == CUDA_ERROR_OUT_OF_MEMORY && MigrateHome(needed_bytes)) result = ask();
  }
  if (result != CUDA_SUCCESS) return result;
  Piece* piece = pools.pieces.Take(pools.lock);
  if (piece == nullptr || !InsertSorted(&pool->chunks, {begin, chunk_bytes, 0, 0})) {
    if (piece != nullptr) pools.pieces.Give(pools.lock, piece);
    GiveDeviceMemory(begin, chunk_bytes, wire::kLegacyStream, wire::Ticket{0});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  piece->free = true;
  piece->begin = begin;
  piece->size_bytes = chunk_bytes;
  piece->pool = pool;
  ListPieceLocked(piece);
  CountReservedLocked(pool, chunk_bytes);
  return CUDA_SUCCESS;
}

// Chunks that other processes can name do not count while it must keep them.
bool ExceedsThreshold(const Pool& pool) {
  const uint64_t kept_bytes = pool.destroyed ? 0 : pool.exported_bytes;
  return pool.reserved_bytes - kept_bytes > pool.release_threshold_bytes;
}

// Finds a piece for the stream; otherwise adds a chunk, or finally waits for what other streams
// still use. The lock is held even while it waits: otherwise others might take what becomes free.
CUresult FindOrGrowLocked(Pool* pool, uint64_t size_bytes, wire::StreamId stream, Piece** found)
    GPULOOM_REQUIRES(pools.lock) {
  *found = FindPieceLocked(pool, size_bytes, stream);
  if (*found != nullptr) return CUDA_SUCCESS;
  JoinSettledPiecesLocked(pool);
  *found = FindPieceLocked(pool, size_bytes, stream);
  if (*found != nullptr) return CUDA_SUCCESS;
  bool refused = false;
  CUresult result = AddChunkLocked(pool, size_bytes, &refused);
  if (result == CUDA_ERROR_OUT_OF_MEMORY && !IsBeyondAll(size_bytes)) {
    CUDA_RETURN_IF_ERROR(session.WaitForAll());
    TrimAllLocked(/*everything=*/false);
    JoinSettledPiecesLocked(pool);
    *found = FindPieceLocked(pool, size_bytes, stream);
    if (*found != nullptr) return CUDA_SUCCESS;
    result = AddChunkLocked(pool, size_bytes, &refused);
  }
  if (result != CUDA_SUCCESS) return result;
  *found = FindPieceLocked(pool, size_bytes, stream);
  return *found != nullptr ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

Pool* MakePoolLocked(uint64_t max_bytes) {
  Pool* pool = pools.table.Take(pools.lock);
  if (pool == nullptr) return nullptr;
  pool->max_bytes = max_bytes;
  // CUDA's defaults: all three kinds of reuse are allowed.
  for (int& one : pool->reuse) one = 1;
  return pool;
}

void GivePoolLocked(Pool* pool) {
  CloseSharedLocked(*pool);
  pool->chunks.Free();
  pools.table.Give(pools.lock, pool);
}

Pool* FindPool(CUmemoryPool handle) {
  Pool* pool = pools.table.Find(handle);
  return pool != nullptr && !pool->destroyed ? pool : nullptr;
}

Pool* DefaultPool() {
  Holding holding(&pools.lock);
  if (pools.standard == nullptr) {
    pools.standard = MakePoolLocked(0);
    if (pools.standard != nullptr) pools.standard->is_default = true;
  }
  return pools.standard;
}

Pool* CurrentPool() {
  Pool* standard = DefaultPool();
  Holding holding(&pools.lock);
  return pools.current != nullptr ? pools.current : standard;
}

void SetCurrentPool(Pool* pool) {
  Holding holding(&pools.lock);
  pools.current = pool;
}

CUresult MakePool(uint64_t max_bytes, CUmemAllocationHandleType handles, Pool** pool) {
  Holding holding(&pools.lock);
  *pool = MakePoolLocked(max_bytes);
  if (*pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  (*pool)->handles = handles;
  return CUDA_SUCCESS;
}

// The program may go on using what it has allocated: the pool's memory is returned as it is freed.
CUresult DestroyPool(Pool* pool) {
  if (pool->is_default) return CUDA_ERROR_INVALID_VALUE;
  Holding holding(&pools.lock);
  if (pool->imported) return CloseImportedLocked(pool);
  if (pools.current == pool) pools.current = nullptr;
  pool->destroyed = true;
  pool->release_threshold_bytes = 0;
  if (pool->reserved_bytes != 0) {
    pools.may_trim.store(true, std::memory_order_relaxed);
    TrimLocked(pool, 0, /*exported=*/true);
  } else {
    GivePoolLocked(pool);
  }
  return CUDA_SUCCESS;
}

CUresult TakeFromPool(Pool* pool, uint64_t size_bytes, wire::StreamId stream, uint64_t* address,
                      uint32_t* piece_id) {
  if (size_bytes > session.device_range().size_bytes)
    return RefuseBeyondAddresses(*pool, size_bytes);
  const uint64_t rounded = RoundUp(size_bytes, kPieceStepBytes);
  Holding holding(&pools.lock);
  Piece* found = nullptr;
  CUDA_RETURN_IF_ERROR(FindOrGrowLocked(pool, rounded, stream, &found));
  Piece* piece = CutPieceLocked(found, rounded);
  if (piece == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  piece->asked_bytes = size_bytes;
  CountUsedLocked(pool, size_bytes);
  *address = piece->begin;
  *piece_id = pools.pieces.IdOf(piece);
  return CUDA_SUCCESS;
}

void GiveToPool(uint32_t piece_id, wire::StreamId stream, wire::Ticket ticket) {
  Holding holding(&pools.lock);
  Piece* piece = pools.pieces.At(piece_id);
  Pool* pool = piece->pool;
  if (pool->imported) return GiveImportedLocked(piece);
  pool->used_bytes -= piece->asked_bytes;
  piece->free = true;
  piece->stream = stream;
  piece->ticket = ticket;
  JoinAndListPieceLocked(piece);
  if (ExceedsThreshold(*pool)) {
    pools.may_trim.store(true, std::memory_order_relaxed);
  }
}

void TrimPool(Pool* pool, uint64_t keep_bytes) {
  Holding holding(&pools.lock);
  TrimLocked(pool, keep_bytes, /*exported=*/true);
}

bool MakeRoom(uint64_t size_bytes) {
  {
    Holding holding(&pools.lock);
    TrimAllLocked(/*everything=*/true);
  }
  return QuotaHasRoomAtLast(size_bytes) ||
         (MigrateHome(size_bytes) && QuotaHasRoomAtLast(size_bytes));
}

void ResetPools() {
  Holding holding(&pools.lock);
  for (uint32_t id = 1; id <= pools.table.used(); ++id) {
    Pool* pool = pools.table.At(id);
    if (pool == nullptr) continue;
    // All allocations of the program in it are gone.
    for (const Chunk& chunk : pool->chunks) {
      GiveDeviceMemory(chunk.begin, chunk.size_bytes, wire::kLegacyStream, wire::Ticket{0});
    }
    for (uint32_t i = 1; i <= pools.pieces.used(); ++i) {
      Piece* piece = pools.pieces.At(i);
      if (piece != nullptr && piece->pool == pool) pools.pieces.Give(pools.lock, piece);
    }
    GivePoolLocked(pool);
  }
  pools.standard = pools.current = nullptr;
}

PieceFacts FactsOfPiece(uint32_t piece_id) {
  Holding holding(&pools.lock);
  const Piece* piece = pools.pieces.At(piece_id);
  if (piece == nullptr) return {nullptr, {0, 0, 0, 0}, CU_MEM_HANDLE_TYPE_NONE};
  const size_t i = FindAtOrBefore(piece->pool->chunks, piece->begin);
  return {reinterpret_cast<CUmemoryPool>(piece->pool), piece->pool->chunks[i],
          piece->pool->handles};
}

CUresult GetPoolAttribute(Pool* pool, CUmemPool_attribute attribute, void* value) {
  Holding holding(&pools.lock);
  auto* number = static_cast<cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      *static_cast<int*>(value) = pool->reuse[attribute - 1];
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      *number = pool->release_threshold_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      *number = pool->reserved_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      *number = pool->reserved_high_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      *number = pool->used_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      *number = pool->used_high_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetPoolAttribute(Pool* pool, CUmemPool_attribute attribute, const void* value) {
  Holding holding(&pools.lock);
  const auto* number = static_cast<const cuuint64_t*>(value);
  switch (attribute) {
    case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
    case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
      pool->reuse[attribute - 1] = *static_cast<const int*>(value) != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      pool->release_threshold_bytes = *number;
      pools.may_trim.store(true, std::memory_order_relaxed);
      return CUDA_SUCCESS;
    // A high-water mark can be reset to the current value, but not set.
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      if (*number != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->reserved_high_bytes = pool->reserved_bytes;
      return CUDA_SUCCESS;
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      if (*number != 0) return CUDA_ERROR_INVALID_VALUE;
      pool->used_high_bytes = pool->used_bytes;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

void TrimAtSynchronisation() {
  // Without the lock: programs synchronize far more often than pools hold too much.
  if (!pools.may_trim.load(std::memory_order_relaxed)) return;
  Holding holding(&pools.lock);
  pools.may_trim.store(false, std::memory_order_relaxed);
  TrimAllLocked(/*everything=*/false);
  for (uint32_t id = 1; id <= pools.table.used(); ++id) {
    const Pool* pool = pools.table.At(id);
    // A pool whose memory is freed, in streams that have not come so far, is trimmed later.
    if (pool != nullptr && pool->used_bytes == 0 && ExceedsThreshold(*pool)) {
      pools.may_trim.store(true, std::memory_order_relaxed);
    }
  }
}

}  // namespace gpuloom
