// SPDX-License-Identifier: Apache-2.0
// What memory the program has from us: device allocations, module globals it asked for, pinned host
// memory. Every address a program passes is judged against this table, so that a program's mistake
// is CUDA_ERROR_INVALID_VALUE and never a broken session. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

enum class MemoryKind : uint32_t {
  kDevice,      // cuMemAlloc
  kGlobal,      // a module's variable
  kPinnedHost,  // cuMemHostAlloc
  kMapped,      // cuMemMap
  kPooled,      // cuMemAllocAsync
  kManaged,     // cuMemAllocManaged, or a module's variable
  kRegistered,  // cuMemHostRegister: never in this table (registered_memory.h)
};

// `object` of memory in the arena that is part of something: a module's variable, moved pages.
inline constexpr uint32_t kBelongsToOther = 1;

struct KnownMemory {
  uint64_t begin;
  uint64_t size_bytes;
  MemoryKind kind;
  uint32_t flags;           // kPinnedHost: CU_MEMHOSTALLOC_*; kMapped: CUmemAccess_flags
  wire::LibraryId library;  // kGlobal
  uint32_t object;          // kMapped: the physical memory; kPooled: the piece; see kBelongsToOther
  uint64_t buffer_id;       // never used twice
};

// The allocation that holds all of [address, address + size_bytes), for work that names it. Of
// memory that is mapped without a gap, the first mapping; what has no access is not found.
[[nodiscard]] bool FindMemory(uint64_t address, uint64_t size_bytes, KnownMemory* found);

// What lies at the address, access or not.
[[nodiscard]] bool FindKnown(uint64_t address, KnownMemory* found);
// The first that begins at the address or behind it.
[[nodiscard]] bool FindKnownFrom(uint64_t address, KnownMemory* found);

// True for what the host reads and writes at the same address.
inline bool LiesInArena(MemoryKind kind) {
  return kind == MemoryKind::kPinnedHost || kind == MemoryKind::kManaged;
}

// Gives the entry its buffer id. False without memory.
[[nodiscard]] bool NoteMemory(const KnownMemory& entry);
// Takes the entry that begins exactly here out of the table.
[[nodiscard]] bool ForgetMemory(uint64_t begin, MemoryKind kind, KnownMemory* forgotten = nullptr);
void SetMemoryFlags(uint64_t begin, uint32_t flags);

// A module's variable, when the program has asked for it. False without memory.
[[nodiscard]] bool NoteGlobal(wire::DevicePtr address, uint64_t size_bytes,
                              wire::LibraryId library);
void ForgetGlobals(wire::LibraryId library);

// For memory that the table does not hold.
[[nodiscard]] uint64_t NewBufferId();

// Memory of other processes that is open here, for the reset of the context (ipc.cc).
void CloseAllShared();

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, by buffer id (pointer.cc). Once a program has set it anywhere,
// synchronous copies and fills wait for their end wherever they are: more than it asked for.
[[nodiscard]] bool MemoryOperationsWait();

// What was said about managed memory that is freed (managed_memory.cc).
void ForgetManaged(uint64_t begin);
// A module's `__managed__` variable, when the program has asked for it; all in a range. False
// without memory.
[[nodiscard]] bool NoteManagedVariable(uint64_t begin, uint64_t size_bytes);
void ForgetManagedVariables(uint64_t begin, uint64_t size_bytes);

// For the reset of the context; nothing is in flight.
void ReleaseAllMemory();

}  // namespace gpuloom
