// SPDX-License-Identifier: Apache-2.0
// The program's own memory that it has registered (cuMemHostRegister). Its pages stay where they
// are, out of the device's reach, and copies go through staging, as for pageable memory, until the
// program asks for their device address: then they are moved into the arena (shared_pages.h). Safe
// from any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/memory/shared_pages.h"

namespace gpuloom {

struct RegisteredMemory {
  uint64_t begin;
  uint64_t size_bytes;
  uint32_t flags;  // CU_MEMHOSTREGISTER_*
  uint32_t unused;
  uint64_t buffer_id;
  SharedPages pages;  // size_bytes is 0 until the device address is wanted
};

[[nodiscard]] bool FindRegistered(uint64_t address, RegisteredMemory* found);
[[nodiscard]] inline bool IsRegistered(uint64_t address) {
  RegisteredMemory found;
  return FindRegistered(address, &found);
}
// The device's address of a registered byte. INVALID_VALUE if it is not registered, NOT_SUPPORTED
// for pages that cannot be moved.
[[nodiscard]] CUresult MapRegistered(uint64_t address, CUdeviceptr* device);
// Where the device reaches all of a registered range whose pages have been moved; false for any
// other.
[[nodiscard]] bool FindMoved(uint64_t address, uint64_t size_bytes, uint64_t* place);
// For a reset of the context; nothing is in flight.
void ForgetAllRegistered();

}  // namespace gpuloom
