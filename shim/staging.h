// Pinned buffers through which copies of pageable memory go. Few and fixed, cut from the arena at
// the first use; a buffer is used again when the device has finished with it. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// Small enough that copying into one and copying out of another overlap for a megabyte, large
// enough that the device's copy engine is busy.
inline constexpr uint32_t kStagingBytes = 512u << 10;
inline constexpr uint32_t kStagingBuffers = 8;

struct Staging {
  uint32_t index;
  uint8_t* data;  // kStagingBytes
};

// Waits until one is free.
[[nodiscard]] CUresult TakeStaging(Staging* staging);
// False when none is free right now. For a caller that already holds one.
[[nodiscard]] bool TryTakeStaging(Staging* staging);
// Free again when the stream has reached the ticket; the zero ticket means at once.
void GiveStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket);

}  // namespace gpuloom
