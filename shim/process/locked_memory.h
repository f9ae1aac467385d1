// SPDX-License-Identifier: Apache-2.0
// How much of this process's memory the kernel counts as locked or pinned (/proc/self/status). Safe from any thread.
#pragma once

#include <cstdint>

namespace gpuloom {

struct LockedMemory {
  uint64_t locked_kib;  // mlock: pages that are not swapped
  uint64_t
      pinned_kib;  // by other drivers: pages that a device or io_uring reads and writes in place
};

// False without /proc.
[[nodiscard]] bool ReadLockedMemory(LockedMemory* memory);

}  // namespace gpuloom
