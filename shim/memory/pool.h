// SPDX-License-Identifier: Apache-2.0
// Pools of device memory in stream order (cuMemAllocAsync). A pool takes chunks of memory (device_memory.h), cuts
// them, and gives what a stream has freed to that stream at once and to others once the stream has passed the point of
// the free. Messages are sent only for a new chunk and, on blocking streams, for a mark of that point.
//
// Safe from any thread: one lock for all pools is taken inside. Unused chunks are returned when the program
// synchronises and the pool holds more than its release threshold; chunks that another process knows of stay until
// the pool is trimmed or destroyed, or memory runs out.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/shared_pool_commands.h"
#include "shim/process/growing.h"

namespace gpuloom {

struct Piece;

// A part of device memory that belongs to a pool.
struct Chunk {
  uint64_t begin;
  uint64_t size_bytes;
  uint64_t number;  // by which other processes know it; 0: they do not
  uint64_t pieces;  // of an imported one: pieces in use here
};

inline constexpr int kPieceBins = 96;

struct Pool {
  std::atomic<uint32_t> alive;
  bool is_default;
  bool destroyed;                     // freed with its last allocation
  bool imported;                      // made by another; nothing is allocated from it here
  uint32_t imports;                   // of an imported one: how many times
  CUmemAllocationHandleType handles;  // what it can be exported as
  int reuse[3];                       // CU_MEMPOOL_ATTR_REUSE_*, in CUDA's order
  uint64_t release_threshold_bytes;
  uint64_t max_bytes;  // 0: no limit of its own
  uint64_t used_bytes;
  uint64_t used_high_bytes;
  uint64_t reserved_bytes;
  uint64_t reserved_high_bytes;
  Growing<Chunk> chunks;
  Piece* free_pieces[kPieceBins];
  // The following are for a shared pool (shared_pool.h).
  uint64_t number;  // the executor's; 0: the executor does not know the pool
  wire::Token token;
  uint64_t exported_bytes;  // of chunks with a number: they are kept until the pool is destroyed

  [[nodiscard]] bool shareable() const {
    return handles == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
};

// nullptr if it is not a live pool.
[[nodiscard]] Pool* FindPool(CUmemoryPool handle);
[[nodiscard]] Pool* DefaultPool();
[[nodiscard]] Pool* CurrentPool();
void SetCurrentPool(Pool* pool);
[[nodiscard]] CUresult MakePool(uint64_t max_bytes, CUmemAllocationHandleType handles, Pool** pool);
// It is freed with its last allocation. INVALID_VALUE for the default one, and for an imported one in use.
[[nodiscard]] CUresult DestroyPool(Pool* pool);

// Allocates memory that work of `stream` may use from now on.
[[nodiscard]] CUresult TakeFromPool(Pool* pool, uint64_t size_bytes, wire::StreamId stream,
                                    uint64_t* address, uint32_t* piece);
// Frees an allocation of TakeFromPool. Its use ends when `stream` reaches `ticket` (0: it has ended).
void GiveToPool(uint32_t piece, wire::StreamId stream, wire::Ticket ticket);

// Returns unused chunks until the pool holds at most `keep_bytes`.
void TrimPool(Pool* pool, uint64_t keep_bytes);
// Call it when memory has run out: returns unused and kept memory to the scheduler and, if that is not enough, leaves
// managed memory's device memory to the caller (MigrateHome). Returns whether the quota then has room for `size_bytes`:
// only then is the memory to be requested again (device_memory.h).
[[nodiscard]] bool MakeRoom(uint64_t size_bytes);
// For a reset of the context; nothing is in use any more.
void ResetPools();

// What pointer attributes report about an allocation.
struct PieceFacts {
  CUmemoryPool pool;
  Chunk chunk;
  CUmemAllocationHandleType handles;  // of the pool
};
[[nodiscard]] PieceFacts FactsOfPiece(uint32_t piece);

[[nodiscard]] CUresult GetPoolAttribute(Pool* pool, CUmemPool_attribute attribute, void* value);
[[nodiscard]] CUresult SetPoolAttribute(Pool* pool, CUmemPool_attribute attribute,
                                        const void* value);

// Called where the program has synchronised.
void TrimAtSynchronisation();

}  // namespace gpuloom
