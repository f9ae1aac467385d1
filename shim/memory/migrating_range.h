// SPDX-License-Identifier: Apache-2.0
// One allocation that migrates, chunk by chunk, between the program's pages and the device's memory: what is mapped for
// the device, what is copied, and which side has the newest copy. When to do that, and for whom, is decided in
// migration.cc, the only one who uses this.
//
//   home: in the arena's pages, where the program may touch it       away: in device memory, its pages hidden
//
// A range owns its pages, its device memory and the array `away`; migration.cc makes and ends it. The caller holds
// migrating.lock for everything here, also during round trips and copies, even on the page-fault thread. Lock order:
// pools.lock, then that lock, then physical_lock and the ring's. Failures are CUDA's codes.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"
#include "shim/process/futex.h"
#include "shim/process/growing.h"

namespace gpuloom {

// What one page fault fetches from the device at least.
inline constexpr uint64_t kMigratingChunkBytes = 64u << 10;

// What is mapped at a range's addresses on the device.
enum class Backing : uint8_t { kNothing, kDevice, kPages };

// Only a range that has device memory (kDevice) has chunks that are away.
struct MigratingRange {
  uint64_t begin;       // for program and device
  uint64_t size_bytes;  // whole granules
  uint64_t pages;       // the same memory in the arena
  Backing backing;
  bool prefers_host;
  bool of_library;  // its managed variables: outlives contexts
  bool stays_home;  // HomeHold
  uint64_t serial;  // never used again
  // CU_MEM_ATTACH_*, and by which stream: a touch waits for that stream alone, or for all work.
  unsigned attachment;
  wire::StreamId attached;
  uint32_t users;  // threads that are writing commands which name it: nothing is fetched
  // For each chunk, whether it is away; only chunks from first_home up to end_home can be at home.
  uint8_t* away;
  uint64_t first_home;
  uint64_t end_home;
  // Where a sequential reader faults next, and how many chunks its last fault fetched.
  uint64_t next_chunk;
  uint64_t next_chunks;

  uint64_t chunks() const { return size_bytes / kMigratingChunkBytes; }
  bool AnyHome() const { return first_home < end_home; }
};

struct MigratingRanges {
  Lock lock;
  Growing<MigratingRange> all GPULOOM_GUARDED_BY(lock);  // sorted by address
};
extern MigratingRanges migrating;

// Copies the home chunks of [first, end) to the device. Their pages are hidden first: a thread that
// writes to them meanwhile faults and waits. NOT_SUPPORTED if some cannot be hidden: all chunks
// still count as home then, and hidden pages are shown again at their first fault.
[[nodiscard]] CUresult SendChunksLocked(MigratingRange* range, uint64_t first, uint64_t end)
    GPULOOM_REQUIRES(migrating.lock);
// Fetches the chunks of [first, end), all of which are away. If the session has ended they count as
// home all the same, with the content that they had when they were sent.
CUresult FetchChunksLocked(MigratingRange* range, uint64_t first, uint64_t end)
    GPULOOM_REQUIRES(migrating.lock);

// Maps the range on the device unless it is mapped already: to device memory if the range may
// migrate and the quota has room, else to its host pages. All chunks are home before and after.
[[nodiscard]] CUresult MapRangeLocked(MigratingRange* range) GPULOOM_REQUIRES(migrating.lock);
void UnmapRangeLocked(const MigratingRange& range) GPULOOM_REQUIRES(migrating.lock);
// Fetches what is away, and unmaps the range. The device must have finished with it.
[[nodiscard]] CUresult BringHomeLocked(MigratingRange* range) GPULOOM_REQUIRES(migrating.lock);
// Moves the range to its host pages for good. The device must have finished with it.
[[nodiscard]] CUresult SettleRangeLocked(MigratingRange* range) GPULOOM_REQUIRES(migrating.lock);
// Makes the latest content of the whole range visible to the device.
[[nodiscard]] CUresult SendRangeLocked(MigratingRange* range) GPULOOM_REQUIRES(migrating.lock);

// For a reset of the context, with which the stream of our copies ends.
void ForgetOwnStreamLocked() GPULOOM_REQUIRES(migrating.lock);

}  // namespace gpuloom
