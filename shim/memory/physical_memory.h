// SPDX-License-Identifier: Apache-2.0
// Physical memory that the program holds by handle (cuMemCreate, an import) or by mappings. It is returned to the
// executor when neither holds it. The caller holds physical_lock for every function here, also during round trips,
// because mappings change together with this table; but what waits for the device's earlier work, which may never end,
// releases it meanwhile, and needs a ChangingRange. Failures are CUDA's codes.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/virtual_memory_commands.h"
#include "shim/process/futex.h"

namespace gpuloom {

struct PhysicalMemory {
  std::atomic<uint32_t> alive;
  uint32_t handles;       // how many handles hold it
  uint32_t mappings;      // how many mappings
  uint32_t handle_types;  // CUmemAllocationHandleType, as asked for
  uint64_t size_bytes;
};

extern Lock physical_lock;

// Addresses whose mappings one thread looks at or changes, while others that want to wait for it: the executor takes no
// other command for a range that is being unmapped. Waits with the lock released. One at a time in each thread.
class ChangingRange {
 public:
  ChangingRange(uint64_t begin, uint64_t size_bytes) GPULOOM_REQUIRES(physical_lock);
  ~ChangingRange() GPULOOM_REQUIRES(physical_lock);
  ChangingRange(const ChangingRange&) = delete;
  ChangingRange& operator=(const ChangingRange&) = delete;

 private:
  bool IsFreeLocked() const GPULOOM_REQUIRES(physical_lock);

  const uint64_t begin_;
  const uint64_t size_bytes_;
  ChangingRange* next_ GPULOOM_GUARDED_BY(physical_lock);
};

// Null if it is not a live handle.
PhysicalMemory* FindPhysicalLocked(CUmemGenericAllocationHandle handle)
    GPULOOM_REQUIRES(physical_lock);
PhysicalMemory* PhysicalAtLocked(uint32_t id) GPULOOM_REQUIRES(physical_lock);
uint32_t IdOfPhysicalLocked(const PhysicalMemory* memory);
CUmemGenericAllocationHandle HandleOf(const PhysicalMemory* memory);

// The new memory is held by one handle.
[[nodiscard]] CUresult CreatePhysicalLocked(uint64_t size_bytes, uint32_t handle_types,
                                            PhysicalMemory** memory)
    GPULOOM_REQUIRES(physical_lock);
[[nodiscard]] CUresult ImportPhysicalLocked(const wire::Token& token, PhysicalMemory** memory)
    GPULOOM_REQUIRES(physical_lock);
// Call after dropping a handle or mapping.
[[nodiscard]] CUresult ReleaseIfUnheldLocked(PhysicalMemory* memory)
    GPULOOM_REQUIRES(physical_lock);

// Maps at reserved addresses, without access. OUT_OF_MEMORY leaves nothing behind.
[[nodiscard]] CUresult MapPhysicalLocked(PhysicalMemory* memory, uint64_t address)
    GPULOOM_REQUIRES(physical_lock);
// Unmaps what is mapped exactly at this address. This and SetAccessLocked want a ChangingRange, and release the lock
// meanwhile.
[[nodiscard]] CUresult UnmapPhysicalLocked(uint64_t address) GPULOOM_REQUIRES(physical_lock);
// Whole mappings without gaps.
[[nodiscard]] CUresult SetAccessLocked(uint64_t address, uint64_t size_bytes, uint32_t flags)
    GPULOOM_REQUIRES(physical_lock);

}  // namespace gpuloom
