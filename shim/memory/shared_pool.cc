// SPDX-License-Identifier: Apache-2.0
#include "shim/memory/shared_pool.h"

#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/memory/device_memory.h"
#include "shim/memory/memory.h"
#include "shim/memory/pool_table.h"
#include "shim/process/log.h"
#include "shim/session/session.h"
#include "shim/session/shared_descriptor.h"

namespace gpuloom {
namespace {

static_assert(kMaxPools <= wire::kMaxSharedPools, "a pool's id here is its id on the wire");

// What stands in CUDA's 64 opaque bytes. It opens nothing by itself.
struct PointerText {
  uint64_t magic;
  uint64_t pool;    // its number
  uint64_t memory;  // the chunk's number in it
  uint64_t offset_bytes;
  uint64_t size_bytes;
};
constexpr uint64_t kPointerMagic = 0x726f6f706d6f6f6c;  // "loompoor"
static_assert(sizeof(PointerText) <= sizeof(CUmemPoolPtrExportData));

// The id is free to be used again once CloseSharedLocked has been posted, as the ring keeps the
// order.
wire::PoolId IdOf(const Pool* pool) { return wire::PoolId{pools.table.IdOf(pool)}; }

// Makes the pool known to the executor, once. The number names it to us and our peers; only the
// token opens it.
CUresult ShareLocked(Pool* pool) GPULOOM_REQUIRES(pools.lock) {
  if (pool->number != 0) return CUDA_SUCCESS;
  wire::PoolShare::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::PoolShare>({IdOf(pool)}, &reply));
  pool->number = reply.number;
  pool->token = reply.token;
  return CUDA_SUCCESS;
}

// Lets importers find the chunk, once. It cannot be taken back: from here on the chunk stays until
// the pool is trimmed or destroyed or memory runs out, because an importer may come at any time.
CUresult PutLocked(Pool* pool, Chunk* chunk) GPULOOM_REQUIRES(pools.lock) {
  if (chunk->number != 0) return CUDA_SUCCESS;
  wire::PoolPut::Reply reply;
  CUDA_RETURN_IF_ERROR(
      session.Call<wire::PoolPut>({IdOf(pool), 0, wire::DevicePtr{chunk->begin}}, &reply));
  chunk->number = reply.memory;
  pool->exported_bytes += chunk->size_bytes;
  return CUDA_SUCCESS;
}

// The chunk of an imported pool, mapped if it was not.
CUresult TakeLocked(Pool* pool, uint64_t number, size_t* index) GPULOOM_REQUIRES(pools.lock) {
  for (size_t i = 0; i < pool->chunks.count(); ++i) {
    if (pool->chunks[i].number != number) continue;
    *index = i;
    return CUDA_SUCCESS;
  }
  wire::PoolTake::Reply reply;
  const CUresult result = session.Call<wire::PoolTake>({IdOf(pool), 0, number}, &reply);
  // It was not exported from this pool, or no longer exists.
  if (result == CUDA_ERROR_INVALID_HANDLE) return CUDA_ERROR_INVALID_VALUE;
  if (result != CUDA_SUCCESS) return result;
  const auto begin = static_cast<uint64_t>(reply.address);
  if (!InsertSorted(&pool->chunks, {begin, reply.size_bytes, number, 0})) {
    GiveDeviceMemory(begin, reply.size_bytes, wire::kLegacyStream, wire::Ticket{0});
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  CountReservedLocked(pool, reply.size_bytes);
  *index = FindAtOrBefore(pool->chunks, begin);
  return CUDA_SUCCESS;
}

// Unmaps a chunk of an imported pool that has no piece left here. The exporter's memory is not
// affected.
void LeaveIfUnusedLocked(Pool* pool, size_t index) GPULOOM_REQUIRES(pools.lock) {
  const Chunk chunk = pool->chunks[index];
  if (chunk.pieces != 0) return;
  pool->chunks.Remove(index);
  pool->reserved_bytes -= chunk.size_bytes;
  // Ordered after everything sent so far.
  GiveDeviceMemory(chunk.begin, chunk.size_bytes, wire::kLegacyStream, wire::Ticket{0});
}

// Finds it by the executor's number, which is the same for all imports of one pool.
Pool* FindImportedLocked(uint64_t number) GPULOOM_REQUIRES(pools.lock) {
  for (uint32_t id = 1; id <= pools.table.used(); ++id) {
    Pool* pool = pools.table.At(id);
    if (pool != nullptr && pool->imported && pool->number == number) return pool;
  }
  return nullptr;
}

// A piece for the allocation at `begin`, known to the program.
CUresult ImportPieceLocked(Pool* pool, Chunk* chunk, uint64_t begin, uint64_t size_bytes)
    GPULOOM_REQUIRES(pools.lock) {
  KnownMemory known;
  if (FindKnown(begin, &known) ||
      (FindKnownFrom(begin, &known) && known.begin - begin < size_bytes)) {
    // The same allocation again, which still has to be freed only once, as with the real driver.
    // Anything else at that address was freed by its maker, but not yet by this process.
    return known.begin == begin && size_bytes <= known.size_bytes ? CUDA_SUCCESS
                                                                  : CUDA_ERROR_INVALID_VALUE;
  }
  Piece* piece = pools.pieces.Take(pools.lock);
  if (piece == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  piece->begin = begin;
  piece->size_bytes = piece->asked_bytes = size_bytes;
  piece->pool = pool;
  if (!NoteMemory({begin, size_bytes, MemoryKind::kPooled, 0, {}, pools.pieces.IdOf(piece), 0})) {
    pools.pieces.Give(pools.lock, piece);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  ++chunk->pieces;
  CountUsedLocked(pool, size_bytes);
  return CUDA_SUCCESS;
}

}  // namespace

void GiveImportedLocked(Piece* piece) {
  Pool* pool = piece->pool;
  pool->used_bytes -= piece->asked_bytes;
  const size_t index = FindAtOrBefore(pool->chunks, piece->begin);
  pools.pieces.Give(pools.lock, piece);
  --pool->chunks[index].pieces;
  LeaveIfUnusedLocked(pool, index);
}

CUresult CloseImportedLocked(Pool* pool) {
  // Something of it is still in use here.
  if (pool->reserved_bytes != 0) return CUDA_ERROR_INVALID_VALUE;
  if (--pool->imports == 0) GivePoolLocked(pool);
  return CUDA_SUCCESS;
}

void CloseSharedLocked(const Pool& pool) {
  if (pool.number != 0) (void)session.Post<wire::PoolClose>({IdOf(&pool)});
}

CUresult ExportPool(Pool* pool, int* fd) {
  Holding holding(&pools.lock);
  if (!pool->shareable()) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(ShareLocked(pool));
  return MakeDescriptor(DescriptorKind::kPool, pool->token, fd);
}

CUresult ImportPool(int fd, Pool** made) {
  wire::Token token;
  CUDA_RETURN_IF_ERROR(ReadDescriptor(DescriptorKind::kPool, fd, &token));
  Holding holding(&pools.lock);
  Pool* pool = MakePoolLocked(0);
  if (pool == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  wire::PoolOpen::Reply reply;
  const CUresult result = session.Call<wire::PoolOpen>({IdOf(pool), 0, token}, &reply);
  if (result != CUDA_SUCCESS) {
    GivePoolLocked(pool);
    if (result != CUDA_ERROR_INVALID_HANDLE) return result;
    Log(LogLevel::kWarn,
        "this descriptor's memory pool is not known here: the process that exported it is of "
        "another trust domain or node, or has ended");
    return CUDA_ERROR_UNKNOWN;
  }
  // A pool that is imported again is the same one.
  if (Pool* known = FindImportedLocked(reply.number); known != nullptr) {
    pool->number = reply.number;  // so that the executor forgets it
    GivePoolLocked(pool);
    pool = known;
  }
  pool->imported = true;
  ++pool->imports;
  pool->number = reply.number;
  *made = pool;
  return CUDA_SUCCESS;
}

CUresult ExportPointer(uint64_t address, CUmemPoolPtrExportData* data) {
  Holding holding(&pools.lock);
  KnownMemory known;
  if (!FindKnown(address, &known) || known.kind != MemoryKind::kPooled || known.begin != address) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Piece* piece = pools.pieces.At(known.object);
  if (piece == nullptr || !piece->pool->shareable()) return CUDA_ERROR_INVALID_VALUE;
  Pool* pool = piece->pool;
  // As in the real driver, the pool itself must have been exported before.
  if (pool->number == 0) return CUDA_ERROR_INVALID_VALUE;
  Chunk& chunk = pool->chunks[FindAtOrBefore(pool->chunks, address)];
  CUDA_RETURN_IF_ERROR(PutLocked(pool, &chunk));
  const PointerText text = {kPointerMagic, pool->number, chunk.number, address - chunk.begin,
                            known.size_bytes};
  memset(data, 0, sizeof(*data));
  memcpy(data, &text, sizeof(text));
  return CUDA_SUCCESS;
}

CUresult ImportPointer(Pool* pool, const CUmemPoolPtrExportData& data, CUdeviceptr* address) {
  PointerText text;
  memcpy(&text, &data, sizeof(text));
  Holding holding(&pools.lock);
  if (!pool->imported || text.magic != kPointerMagic || text.pool != pool->number ||
      text.size_bytes == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  size_t index = 0;
  CUresult result = TakeLocked(pool, text.memory, &index);
  if (result != CUDA_SUCCESS) return result;
  Chunk& chunk = pool->chunks[index];
  // The text came through another process, which may have changed it: the piece must lie in the
  // chunk.
  if (text.offset_bytes >= chunk.size_bytes ||
      text.size_bytes > chunk.size_bytes - text.offset_bytes) {
    result = CUDA_ERROR_INVALID_VALUE;
  } else {
    const uint64_t begin = chunk.begin + text.offset_bytes;
    result = ImportPieceLocked(pool, &chunk, begin, text.size_bytes);
    if (result == CUDA_SUCCESS) *address = begin;
  }
  if (result != CUDA_SUCCESS) LeaveIfUnusedLocked(pool, index);
  return result;
}

}  // namespace gpuloom
