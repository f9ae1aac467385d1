// SPDX-License-Identifier: Apache-2.0
// Pages of the program's own that were moved into the arena, so that the device reaches them: the
// program finds them where they were, the executor in the arena. Private anonymous memory only; it
// becomes shared memory, and private memory again when it is moved back.
//
// What other threads write into the pages while they are moved may be lost; a page at a time, that
// is a microsecond for what lies beside the range. A child of fork gets copies of its own, as they
// are when it begins to run. Safe from any thread, but for the same range at the same time.
// docs/design/registered-memory.md.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

struct SharedPages {
  uint64_t begin;       // of the program's, whole pages
  uint64_t size_bytes;  // 0: not moved
  uint64_t place;       // where the first of them is in the arena
  uint64_t block;       // for GivePinned
};

// Moves the pages that hold [begin, begin + size_bytes). NOT_SUPPORTED for memory of other kinds:
// files, shared memory, stacks, read-only pages, and pages of malloc's main heap that hold other
// things, too.
[[nodiscard]] CUresult SharePages(uint64_t begin, uint64_t size_bytes, SharedPages* pages);
// Moves them back. The device must have finished with them. What the program has unmapped or
// replaced meanwhile stays as it is.
void UnsharePages(const SharedPages& pages);

}  // namespace gpuloom
