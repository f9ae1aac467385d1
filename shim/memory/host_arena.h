// SPDX-License-Identifier: Apache-2.0
// The session's host arena, which lies at the same address in the executor: where pinned memory
// comes from, and space through which images travel. Its books are kept in private memory.
//
// Pinned memory is cut from chunks: a chunk is populated here first (so that the program's cgroup
// pays for it), then registered by the executor, and unregistered when it is empty and more than
// kKeptBytes lie idle. Safe from any thread; a new chunk is a round trip.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"

namespace gpuloom {

// Registered memory, aligned to 512 bytes. OUT_OF_MEMORY beyond the session's limit.
[[nodiscard]] CUresult TakePinned(uint64_t size_bytes, uint64_t* address);
// The device must have finished with it.
void GivePinned(uint64_t address);

// Unregistered memory for one message to the executor.
[[nodiscard]] CUresult TakeTransferSpace(uint64_t size_bytes, uint64_t* address);
void GiveTransferSpace(uint64_t address);

}  // namespace gpuloom
