// SPDX-License-Identifier: Apache-2.0
// Regions of the arena that the program finds at other addresses, in the space for managed memory (migration.h). There
// they can be hidden from it, while we and the device reach them in the arena. Safe from any thread for different
// addresses.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// The addresses show the program nothing. Where the kernel has no memory for that, they show what they did.
void CloseAddresses(uint64_t begin, uint64_t size_bytes);

// A pinned region that `begin` shows. OUT_OF_MEMORY beyond the session's limit of pinned memory.
[[nodiscard]] CUresult TakeShownPages(uint64_t begin, uint64_t size_bytes, uint64_t* pages);
// The device must have finished with it.
void GiveShownPages(uint64_t begin, uint64_t size_bytes, uint64_t pages);

}  // namespace gpuloom
