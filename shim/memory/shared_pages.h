// SPDX-License-Identifier: Apache-2.0
// The program's own pages moved into the arena, so that the device reaches them: the program still
// sees them where they were, the executor in the arena. Private anonymous memory only; it becomes
// shared memory, and private again when it is moved back.
//
// Threads that write to the pages meanwhile wait (shim/process/write_fence.h). A child of fork gets
// its own copies, as they are when it begins to run. Safe from any thread, except for the same range
// at the same time. docs/design/registered-memory.md.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct SharedPages {
  uint64_t begin;       // the program's, whole pages
  uint64_t size_bytes;  // 0: not moved
  uint64_t place;       // where the first of them is in the arena
  uint64_t block;       // for GivePinned; 0: a region of their own begins at `place`
  // What /proc/self/maps says of the program's pages while they are the arena's.
  uint64_t device;
  uint64_t inode;
  uint64_t file_offset;  // of the first
};

// Moves the pages that hold [begin, begin + size_bytes), except those at the ends that have been moved with another
// range. NOT_SUPPORTED for pages that are not or
// cannot be moved: of files, of shared memory, stacks, pages that may not be written; any, while other
// drivers or io_uring hold pages of the process or the program handles its faults so that ours do not
// come to us. OUT_OF_MEMORY beyond the limit of pinned memory.
[[nodiscard]] CUresult SharePages(uint64_t begin, uint64_t size_bytes, SharedPages* pages);
// Moves them back. The device must have finished with them. What the program has unmapped or
// replaced in the meantime stays as it is.
void UnsharePages(const SharedPages& pages);

}  // namespace gpuloom
