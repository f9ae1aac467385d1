// SPDX-License-Identifier: Apache-2.0
// The session's host arena, which is at the same address in the executor: the source of pinned
// memory, and transfer space for images. Its bookkeeping is in private memory.
//
// Pinned memory is cut from chunks: a chunk is populated here first (so that it is charged to the
// program's cgroup), then registered by the executor, and unregistered when it is empty and more
// than kKeptBytes are idle. Safe from any thread; a new chunk is a round trip.
#pragma once

#include <cstdint>

#include "proto/channel/region.h"
#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Registered memory, aligned to 512 bytes. OUT_OF_MEMORY beyond the session's limit.
[[nodiscard]] CUresult TakePinned(uint64_t size_bytes, uint64_t* address);
// The device must have finished with it.
void GivePinned(uint64_t address);

// A separate part of whole pages, which has no memory until pages move into it one by one. It begins at the same
// offset in a huge page as `like`, so that huge pages can be mapped there. Counts as pinned memory from the start.
// OUT_OF_MEMORY beyond the session's limit.
[[nodiscard]] CUresult TakeRegion(uint64_t size_bytes, uint64_t like, uint64_t* begin);
// Charges memory to the program's cgroup for a piece that is about to be filled.
[[nodiscard]] bool PopulateRegion(uint64_t begin, uint64_t size_bytes);
// Makes the region accessible to the device, once all of it is populated. A round trip.
[[nodiscard]] CUresult PinRegion(uint64_t begin);
// The device must have finished with it. Its memory stays until it is given back, piece by piece or as a whole.
void UnpinRegion(uint64_t begin);
void GiveRegionPiece(uint64_t begin, uint64_t size_bytes);
void GiveRegion(uint64_t begin);

// Takes the end of the host range away from the arena, for managed memory (migration.h). False if the executor does not
// allow it, or something lies there already.
[[nodiscard]] bool TakeManagedSpace(channel::Range* space);

// Unregistered memory for one message to the executor.
[[nodiscard]] CUresult TakeTransferSpace(uint64_t size_bytes, uint64_t* address);
void GiveTransferSpace(uint64_t address);

}  // namespace gpuloom
