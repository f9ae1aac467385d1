// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/spare_memory.h"

#include <utility>

namespace gpuloom::scheduler {

// Only an exact match: a larger piece cannot be cut.
uint32_t SpareMemory::Take(uint64_t size_bytes, uint64_t* handle, channel::UniqueFd* memory) {
  if (size_bytes != size_bytes_ || size_bytes == 0) {
    return device_->CreateMemory(size_bytes, handle, memory);
  }
  *handle = handle_;
  *memory = std::move(memory_);
  size_bytes_ = 0;
  return 0;
}

bool SpareMemory::Note(uint64_t size_bytes, Time now) {
  const bool likely = size_bytes == noted_bytes_ && now - noted_ < kSoon;
  noted_bytes_ = size_bytes;
  noted_ = now;
  return likely && size_bytes <= kLargestBytes;
}

void SpareMemory::Make() {
  // Made for a request that is expected; one of another size would never be taken.
  if (size_bytes_ == noted_bytes_) return;
  Drop();
  // A failure means that the device is full: then there is no spare, and the next request finds out
  // by itself.
  if (device_->CreateMemory(noted_bytes_, &handle_, &memory_) == 0) size_bytes_ = noted_bytes_;
}

bool SpareMemory::Drop() {
  if (size_bytes_ == 0) return false;
  memory_.Reset();
  device_->ReleaseMemory(handle_);
  size_bytes_ = 0;
  return true;
}

}  // namespace gpuloom::scheduler
