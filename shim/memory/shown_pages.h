// SPDX-License-Identifier: Apache-2.0
// Regions of the arena that are mapped for the program at other addresses, in the space for managed memory
// (migration.h). There they can be hidden from the program, while we and the device reach them in the arena. The
// caller owns a region until GiveShownPages. Safe from any thread for different addresses.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Makes the addresses inaccessible to the program. If the kernel has no memory for that, they keep what is mapped
// there.
void CloseAddresses(uint64_t begin, uint64_t size_bytes);

// Makes a pinned region and maps it at `begin`. OUT_OF_MEMORY beyond the session's limit of pinned memory.
[[nodiscard]] CUresult TakeShownPages(uint64_t begin, uint64_t size_bytes, uint64_t* pages);
// The device must have finished with it.
void GiveShownPages(uint64_t begin, uint64_t size_bytes, uint64_t pages);

}  // namespace gpuloom
