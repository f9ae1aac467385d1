// SPDX-License-Identifier: Apache-2.0
// Device memory in whole allocations of the executor's. What is freed of a megabyte and more goes to
// the executor, which keeps it for a while for this program's next allocation of the size
// (docs/design/memory.md); a few smaller pieces are kept here. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// What an allocation of this size takes: 0 when that is more than numbers can say.
[[nodiscard]] uint64_t TakenBytes(uint64_t size_bytes);

// At least `size_bytes`. Waits for the answer.
[[nodiscard]] CUresult TakeDeviceMemory(uint64_t size_bytes, uint64_t* address);
// `size_bytes` as it was taken. Nobody uses it once `stream` has come to `ticket` (0: at once).
// Waits for nothing: what is not kept goes back after the work that was sent so far.
void GiveDeviceMemory(uint64_t address, uint64_t size_bytes, wire::StreamId stream,
                      wire::Ticket ticket);
// Nothing is kept here afterwards.
void ReturnKeptMemory();

}  // namespace gpuloom
