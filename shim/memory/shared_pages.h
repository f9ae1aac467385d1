// SPDX-License-Identifier: Apache-2.0
// The program's own pages moved into the arena, so that the device reaches them: the program still
// sees them where they were, the executor in the arena. Private anonymous memory only; it becomes
// shared memory, and private again when it is moved back.
//
// Writes of other threads to the pages while they are moved may be lost; one page at a time, so for
// data beside the range that is a microsecond. A child of fork gets its own copies, as they are
// when it begins to run. Safe from any thread, except for the same range at the same time.
// docs/design/registered-memory.md.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct SharedPages {
  uint64_t begin;       // the program's, whole pages
  uint64_t size_bytes;  // 0: not moved
  uint64_t place;       // where the first of them is in the arena
  uint64_t block;       // for GivePinned
};

// Moves the pages that hold [begin, begin + size_bytes). NOT_SUPPORTED for other kinds of memory:
// files, shared memory, stacks, read-only pages, and pages of malloc's main heap that also hold
// other things.
[[nodiscard]] CUresult SharePages(uint64_t begin, uint64_t size_bytes, SharedPages* pages);
// Moves them back. The device must have finished with them. What the program has unmapped or
// replaced in the meantime stays as it is.
void UnsharePages(const SharedPages& pages);

}  // namespace gpuloom
