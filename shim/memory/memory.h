// SPDX-License-Identifier: Apache-2.0
// The memory that the program has from us: device allocations, module globals it asked for, pinned
// host memory. Every address that a program passes is checked against this table, so that a
// program's mistake is CUDA_ERROR_INVALID_VALUE and never a broken session. Safe from any thread.
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
  kGraph,       // a large allocation node's (proto/libcuda/graph/backing.h)
  kRegistered,  // cuMemHostRegister: never in this table (registered_memory.h)
};

// Bits of `object`, for memory that the program reaches, too. Part of something else: a module's variable, moved pages.
inline constexpr uint32_t kBelongsToOther = 1;
// Managed memory that migrates (migration.h).
inline constexpr uint32_t kMigrates = 2;

struct KnownMemory {
  uint64_t begin;
  uint64_t size_bytes;
  MemoryKind kind;
  uint32_t flags;           // kPinnedHost: CU_MEMHOSTALLOC_*; kMapped: CUmemAccess_flags
  wire::LibraryId library;  // kGlobal
  // kMapped: the physical memory; kPooled: the piece; of what the program reaches, too: the bits above.
  uint32_t object;
  uint64_t buffer_id;  // never reused
};

// The allocation that contains all of [address, address + size_bytes), for work that names it: the device finds it
// there. For memory mapped without a gap, the first mapping; memory without access is not found.
[[nodiscard]] bool FindMemory(uint64_t address, uint64_t size_bytes, KnownMemory* found);
// The same for queries, which need nothing of the device.
[[nodiscard]] bool FindAccessible(uint64_t address, uint64_t size_bytes, KnownMemory* found);

// What is at the address, accessible or not.
[[nodiscard]] bool FindKnown(uint64_t address, KnownMemory* found);
// The first that begins at or after the address.
[[nodiscard]] bool FindKnownFrom(uint64_t address, KnownMemory* found);

inline bool IsMigrating(const KnownMemory& memory) {
  return memory.kind == MemoryKind::kManaged && (memory.object & kMigrates) != 0;
}
// Returns true for memory that the program reads and writes at the device's address, and so may read as soon as a call
// that CUDA documents as synchronous returns.
inline bool IsTheProgramsToo(const KnownMemory& memory) {
  return memory.kind == MemoryKind::kPinnedHost || memory.kind == MemoryKind::kManaged;
}
// Returns true for what its owner frees, and no call of the program.
inline bool IsPartOfOther(const KnownMemory& memory) {
  return IsTheProgramsToo(memory) && (memory.object & kBelongsToOther) != 0;
}
// Returns true for memory that the device reaches in host memory, at the program's address.
inline bool IsInArena(const KnownMemory& memory) {
  return IsTheProgramsToo(memory) && !IsMigrating(memory);
}

// Allocates device memory and makes its entry, for the program or its graphs. If there is none left, waits for the
// program's work, and has pools and managed memory make room.
[[nodiscard]] CUresult MakeDeviceMemory(uint64_t size_bytes, CUdeviceptr* address);

// Adds the entry to the table and gives it its buffer id. False if out of memory.
[[nodiscard]] bool NoteMemory(const KnownMemory& entry);
// Removes the entry that begins exactly here from the table.
[[nodiscard]] bool ForgetMemory(uint64_t begin, MemoryKind kind, KnownMemory* forgotten = nullptr);
void SetMemoryFlags(uint64_t begin, uint32_t flags);

// A module's variable, once the program has asked for it. False if out of memory.
[[nodiscard]] bool NoteGlobal(wire::DevicePtr address, uint64_t size_bytes,
                              wire::LibraryId library);
void ForgetGlobals(wire::LibraryId library);

// For memory that is not in the table.
[[nodiscard]] uint64_t NewBufferId();

// Memory of other processes that is open here (ipc.cc): closes once what is mapped at `begin`, for the end of a created
// context; all of it, for a reset.
void CloseShared(uint64_t begin);
void CloseAllShared();

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, by buffer id (pointer.cc). Once a program has set it anywhere,
// all synchronous copies and fills wait for completion: more than it asked for.
[[nodiscard]] bool MemoryOperationsWait();

// Drops the advice about managed memory that is freed (managed_memory.cc).
void ForgetManaged(uint64_t begin);
// A module's `__managed__` variable, once the program has asked for it; all in a range. False if
// out of memory.
[[nodiscard]] bool NoteManagedVariable(uint64_t begin, uint64_t size_bytes);
void ForgetManagedVariables(uint64_t begin, uint64_t size_bytes);
// Whether the device reaches any managed memory of the program in host memory. What migrates and no work has used yet does
// not count.
[[nodiscard]] bool AnyManagedInHostMemory();

// For a reset of the context; nothing is in flight.
void ReleaseAllMemory();

}  // namespace gpuloom
