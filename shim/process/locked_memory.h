// SPDX-License-Identifier: Apache-2.0
// What the kernel counts of this process's memory as bound to its place (/proc/self/status).
#pragma once

#include <cstdint>

namespace gpuloom {

struct LockedMemory {
  uint64_t locked_kib;  // mlock: pages that are not swapped
  uint64_t
      pinned_kib;  // by other drivers: pages that a device or io_uring reads and writes where they are
};

// False without /proc.
[[nodiscard]] bool ReadLockedMemory(LockedMemory* memory);

}  // namespace gpuloom
