// Device memory in whole allocations of the executor's, and a few that the program has freed and
// that are kept for its next allocation of the same size: a granule's way to the scheduler and back
// costs milliseconds. What is kept is charged to the program's quota and goes back as soon as memory
// runs out or somebody asks how much there is. Safe from any thread; waits for answers.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// What an allocation of this size takes: 0 when that is more than numbers can say.
[[nodiscard]] uint64_t TakenBytes(uint64_t size_bytes);

// At least `size_bytes`; OUT_OF_MEMORY after what is kept here has been given back.
[[nodiscard]] CUresult TakeDeviceMemory(uint64_t size_bytes, uint64_t* address);
// `size_bytes` as it was taken. Nobody uses it once `stream` has come to `ticket` (0: at once).
// Waits for nothing: what is not kept goes back after the work that was sent so far.
void GiveDeviceMemory(uint64_t address, uint64_t size_bytes, wire::StreamId stream,
                      wire::Ticket ticket);
// The same when all work is done; what is not kept is back when this returns.
[[nodiscard]] CUresult FreeDeviceMemory(uint64_t address, uint64_t size_bytes);
// Nothing is kept afterwards. Waits for the work that was sent so far.
void ReturnKeptMemory();
// What is kept of whole granules.
[[nodiscard]] uint64_t KeptGranuleBytes();

}  // namespace gpuloom
