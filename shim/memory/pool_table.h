// SPDX-License-Identifier: Apache-2.0
// The process's pools and the pieces into which they are cut, for pool.cc, free_pieces.cc and shared_pool.cc only. One
// table per process owns both and is never destroyed; a pool owns its chunks, which it returns to the executor. The
// caller holds pools.lock for everything here, also for the fields of pools and pieces, which are not annotated because
// the lock is declared after them.
#pragma once

#include "shim/memory/pool.h"
#include "shim/process/futex.h"
#include "shim/process/handle_table.h"

namespace gpuloom {

// A part of a chunk, in use or free. Pieces of a chunk are linked by address without gaps; those of an imported chunk
// are in no list, because the process that owns the pool divides it.
struct Piece {
  std::atomic<uint32_t> alive;
  bool free;
  wire::StreamId stream;  // of a free one: the stream that freed it
  wire::Ticket ticket;    // still in use in that stream until this ticket; 0: unused
  uint64_t begin;
  uint64_t size_bytes;
  uint64_t asked_bytes;  // of one in use: the size that the program asked for
  Pool* pool;
  Piece* before;  // by address
  Piece* after;
  Piece* next;  // in the list of free ones of about this size
  Piece* previous;
};

inline constexpr uint32_t kMaxPieces = 1u << 22;
inline constexpr uint32_t kMaxPools = 1u << 12;

struct Pools {
  Lock lock;
  HandleTable<Pool, kMaxPools> table;
  HandleTable<Piece, kMaxPieces> pieces;
  Pool* standard GPULOOM_GUARDED_BY(lock) = nullptr;
  Pool* current GPULOOM_GUARDED_BY(lock) = nullptr;
  std::atomic<bool> may_trim{false};  // some pool may hold more than its threshold
};
extern Pools pools;

// Returns nullptr if there are too many pools, or no memory.
Pool* MakePoolLocked(uint64_t max_bytes) GPULOOM_REQUIRES(pools.lock);
// Frees a pool, which must have no chunks.
void GivePoolLocked(Pool* pool) GPULOOM_REQUIRES(pools.lock);

inline void CountUsedLocked(Pool* pool, uint64_t bytes) GPULOOM_REQUIRES(pools.lock) {
  pool->used_bytes += bytes;
  if (pool->used_bytes > pool->used_high_bytes) pool->used_high_bytes = pool->used_bytes;
}
inline void CountReservedLocked(Pool* pool, uint64_t bytes) GPULOOM_REQUIRES(pools.lock) {
  pool->reserved_bytes += bytes;
  if (pool->reserved_bytes > pool->reserved_high_bytes) {
    pool->reserved_high_bytes = pool->reserved_bytes;
  }
}

// shared_pool.cc
void GiveImportedLocked(Piece* piece) GPULOOM_REQUIRES(pools.lock);
[[nodiscard]] CUresult CloseImportedLocked(Pool* pool) GPULOOM_REQUIRES(pools.lock);
// Makes the executor forget the pool.
void CloseSharedLocked(const Pool& pool) GPULOOM_REQUIRES(pools.lock);

}  // namespace gpuloom
