// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program holds by handle (cuMemCreate, an import) or by what is mapped. It
// goes back when it is held by neither. The lock is held for every function here, round trips
// included: what is mapped where changes together with it.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/memory_commands.h"
#include "shim/process/futex.h"

namespace gpuloom {

struct PhysicalMemory {
  std::atomic<uint32_t> alive;
  uint32_t handles;       // how often it is held by handle
  uint32_t mappings;      // and where
  uint32_t handle_types;  // CUmemAllocationHandleType, as asked for
  uint64_t size_bytes;
};

extern Lock physical_lock;

// Null for what is no handle.
PhysicalMemory* FindPhysicalLocked(CUmemGenericAllocationHandle handle);
PhysicalMemory* PhysicalAtLocked(uint32_t id);
uint32_t IdOfPhysicalLocked(const PhysicalMemory* memory);
CUmemGenericAllocationHandle HandleOf(const PhysicalMemory* memory);

// Held by one handle.
[[nodiscard]] CUresult CreatePhysicalLocked(uint64_t size_bytes, uint32_t handle_types,
                                            PhysicalMemory** memory);
[[nodiscard]] CUresult ImportPhysicalLocked(const wire::Token& token, PhysicalMemory** memory);
// After a hold was taken off.
[[nodiscard]] CUresult ReleaseIfUnheldLocked(PhysicalMemory* memory);

// Behind reserved addresses, without access. OUT_OF_MEMORY leaves nothing behind.
[[nodiscard]] CUresult MapPhysicalLocked(PhysicalMemory* memory, uint64_t address);
// What is mapped exactly at this address.
[[nodiscard]] CUresult UnmapPhysicalLocked(uint64_t address);
// Whole mappings without gaps.
[[nodiscard]] CUresult SetAccessLocked(uint64_t address, uint64_t size_bytes, uint32_t flags);

}  // namespace gpuloom
