// SPDX-License-Identifier: Apache-2.0
// Device memory in whole allocations of the executor. Freed allocations of a megabyte and more go back to the
// executor, which keeps them for a while for this program's next allocation of that size (docs/design/memory.md); a
// few smaller ones are kept here. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// The memory that an allocation of this size takes; 0 if that overflows.
[[nodiscard]] uint64_t TakenBytes(uint64_t size_bytes);

// At least `size_bytes`. Waits for the reply.
[[nodiscard]] CUresult TakeDeviceMemory(uint64_t size_bytes, uint64_t* address);
// `size_bytes` as it was given to TakeDeviceMemory. The memory is unused once `stream` has reached `ticket` (0: at
// once). Does not wait: memory that is not kept is returned after the work sent so far.
void GiveDeviceMemory(uint64_t address, uint64_t size_bytes, wire::StreamId stream,
                      wire::Ticket ticket);
// Returns all memory that is kept here to the executor.
void ReturnKeptMemory();

// Whether the quota has room for an allocation of this size. Every refusal of the node is counted and shown to
// operators, so after it has refused a call of the program, it is asked again only if this says that there is room.
// True for a small allocation, which may fit into memory that is charged already.
[[nodiscard]] bool QuotaHasRoom(uint64_t size_bytes);
// The same when memory has run out: first returns all memory that is kept here.
[[nodiscard]] bool QuotaHasRoomAtLast(uint64_t size_bytes);

}  // namespace gpuloom
