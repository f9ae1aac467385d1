// SPDX-License-Identifier: Apache-2.0
// Pinned buffers through which copies of pageable memory go. Few and fixed, cut from the arena at
// the first use; a buffer is reused when the device has finished with it. Safe from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "proto/wire/handles.h"

namespace gpuloom {

// Measured in docs/design/pageable-copies.md: pieces large enough to keep the device's copy engine
// busy, and all of them together small enough to stay in the processors' cache.
inline constexpr uint32_t kStagingBytes = 512u << 10;
inline constexpr uint32_t kStagingBuffers = 16;
// For single-piece copies that the caller does not wait for, so that they cannot use up the others.
inline constexpr uint32_t kSmallStagingBytes = 64u << 10;
inline constexpr uint32_t kSmallStagingBuffers = 16;

struct Staging {
  uint32_t index;
  uint8_t* data;  // kStagingBytes
};

// Who waits for a buffer waits only for what comes before it in its own stream, or for a thread that holds one: other
// streams may be waiting for this one. So a caller whose buffers are all in use by other streams gets one of its own,
// while its copy needs it.
//
// A queued copy holds a stream of the program's until it is done (queued_copy.h), and what is behind it there may use all
// buffers: it must not wait for them. So queued copies have one of their own besides, and take the others only when free.
enum class StagingFor : bool { kCallers, kQueuedCopies };

// Before the first queued copy.
[[nodiscard]] CUresult MakeStagingForQueuedCopies();

// For a piece of `stream`. Waits until one is free, or the stream has finished with one.
[[nodiscard]] CUresult TakeStaging(StagingFor whose, wire::StreamId stream, Staging* staging);
// Returns false if none is free right now. For callers that already hold one, which must not wait for another.
[[nodiscard]] bool TryTakeStaging(Staging* staging);
// Free again once the stream has reached the ticket; a zero ticket means at once. May wait for that.
void GiveStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket);

// The same for kSmallStagingBytes; also false if the arena has no memory for them.
[[nodiscard]] bool TryTakeSmallStaging(Staging* staging);
void GiveSmallStaging(const Staging& staging, wire::StreamId stream, wire::Ticket ticket);

}  // namespace gpuloom
