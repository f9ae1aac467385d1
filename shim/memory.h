// What memory the program has from us: device allocations, module globals it asked for, pinned host
// memory. Every address a program passes is judged against this table, so that a program's mistake
// is CUDA_ERROR_INVALID_VALUE and never a broken session. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

enum class MemoryKind : uint32_t { kDevice, kGlobal, kPinnedHost };

struct KnownMemory {
  uint64_t begin;
  uint64_t size_bytes;
  MemoryKind kind;
  uint32_t host_flags;      // kPinnedHost: CU_MEMHOSTALLOC_*
  wire::LibraryId library;  // kGlobal
  uint32_t unused;
  uint64_t buffer_id;  // never used twice
};

// The allocation that holds all of [address, address + size_bytes).
[[nodiscard]] bool FindMemory(uint64_t address, uint64_t size_bytes, KnownMemory* found);

// A module's variable, when the program has asked for it. False without memory.
[[nodiscard]] bool NoteGlobal(wire::DevicePtr address, uint64_t size_bytes,
                              wire::LibraryId library);
void ForgetGlobals(wire::LibraryId library);

// For the reset of the context; nothing is in flight.
void ReleaseAllMemory();

}  // namespace gpuloom
