// SPDX-License-Identifier: Apache-2.0
// The program's own memory that it has registered (cuMemHostRegister). Its pages are moved into the
// arena, where the device reaches them (shared_pages.h). What cannot be moved stays where it is, has
// no device address, and is copied through staging, in the stream's order (queued_copy.h). Safe from
// any thread.
#pragma once

#include <cstdint>

#include "proto/cuda/cuda_all.h"
#include "shim/memory/shared_pages.h"

namespace gpuloom {

struct RegisteredMemory {
  uint64_t begin;
  uint64_t size_bytes;
  uint32_t flags;  // CU_MEMHOSTREGISTER_*
  bool hidden;     // being registered or unregistered: to others it is not there
  uint64_t buffer_id;
  // All of its pages; without those that another range has moved; or none (size_bytes is 0) if they stayed.
  SharedPages pages;
};

[[nodiscard]] bool FindRegistered(uint64_t address, RegisteredMemory* found);
// Returns true if all of it lies in one registered range.
[[nodiscard]] bool IsRegistered(uint64_t address, uint64_t size_bytes);
// The device's address of a registered byte. INVALID_VALUE if it is not registered, NOT_SUPPORTED
// for pages that cannot be moved.
[[nodiscard]] CUresult MapRegistered(uint64_t address, CUdeviceptr* device);
// Whether all of its pages have been moved together.
[[nodiscard]] bool HasDeviceAddress(const RegisteredMemory& range);
// Where the device reaches a part of a registered range; false if its pages stayed or are in several
// places.
[[nodiscard]] bool FindMoved(uint64_t address, uint64_t size_bytes, uint64_t* place);
// The same for a part of a range whose first or last page it shares with another registered range: that page was moved
// with the other. While this lives, none of it is moved back, so it is for posting copies and not for waiting.
class MovedParts {
 public:
  struct Part {
    uint64_t address;
    uint64_t size_bytes;
    uint64_t place;
  };
  static constexpr uint32_t kMost = 3;

  MovedParts(uint64_t address, uint64_t size_bytes);
  ~MovedParts();
  MovedParts(const MovedParts&) = delete;
  MovedParts& operator=(const MovedParts&) = delete;

  // 0 if the device does not reach all of it.
  uint32_t count() const { return count_; }
  const Part& operator[](uint32_t i) const { return parts_[i]; }

 private:
  uint32_t count_ = 0;
  Part parts_[kMost];
};
// For a reset of the context; nothing is in flight.
void ForgetAllRegistered();

}  // namespace gpuloom
