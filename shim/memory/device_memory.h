// SPDX-License-Identifier: Apache-2.0
// Device memory in whole allocations of the executor's. Freed allocations of a megabyte and more go
// to the executor, which keeps them for a while for this program's next allocation of that size
// (docs/design/memory.md); a few smaller pieces are kept here. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// What an allocation of this size takes: 0 if that overflows.
[[nodiscard]] uint64_t TakenBytes(uint64_t size_bytes);

// At least `size_bytes`. Waits for the reply.
[[nodiscard]] CUresult TakeDeviceMemory(uint64_t size_bytes, uint64_t* address);
// `size_bytes` as it was taken. It is not used any more once `stream` has reached `ticket` (0: at once).
// Does not wait: what is not kept is returned after the work sent so far.
void GiveDeviceMemory(uint64_t address, uint64_t size_bytes, wire::StreamId stream,
                      wire::Ticket ticket);
// Afterwards nothing is kept here.
void ReturnKeptMemory();

// Whether the quota has room for what so much takes. Whatever the node refuses counts, and operators see it: once it
// has refused a call of the program, it is asked again only where this has changed. True for a small allocation,
// which may fit into what is charged already.
[[nodiscard]] bool QuotaHasRoom(uint64_t size_bytes);
// Memory has run out: also returns what is kept here.
[[nodiscard]] bool QuotaHasRoomAtLast(uint64_t size_bytes);

}  // namespace gpuloom
