// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which small copies from the ring go to the device. For pageable memory the
// driver may block the caller until its own staging buffers have room; here a copy for which there is no
// room waits in its stream's queue, and the ring thread never blocks. What is taken comes back when the
// device has made the copy, or with the session's end. Owned by the loop; ring thread only.
#pragma once

#include <cstdint>
#include <span>

#include "agent/executor/memory/device_space.h"

namespace gpuloom::executor {

class Device;
struct Tenant;

class Staging {
 public:
  // Limit per session for copies: 16 of the largest inline copies.
  static constexpr uint64_t kSessionBytes = 1u << 20;
  // Limit for all sessions of a tenant.
  static constexpr uint64_t kTenantBytes = 2u << 20;
  // Words of device memory that the executor reads itself have their own part: nothing could make them wait.
  static constexpr uint64_t kWords = 256;

  // Without pinned memory (the driver refused it) nothing waits, and everything goes from pageable memory.
  void Start(Device* device);

  // Returns false if a copy of `size_bytes` has to wait until others are done. A tenant may have as much as is left for
  // others, so that many tenants do not take all of it.
  bool HasRoom(const Tenant& tenant, uint64_t size_bytes) const;
  // Call when HasRoom allows it. Returns a pinned copy of `bytes`, or nullptr without pinned memory. Return it with Give
  // when the device has read it.
  uint8_t* Copy(Tenant* tenant, std::span<const uint8_t> bytes);
  void Give(Tenant* tenant, uint8_t* copy, uint64_t size_bytes);

  // Returns 8 bytes of zeros, or nullptr without pinned memory, and beyond kWords.
  uint8_t* TakeWord();
  void GiveWord(uint8_t* word);

  // Bytes of staging memory that a copy of this size uses.
  static constexpr uint64_t CostBytes(uint64_t size_bytes) {
    return (size_bytes + kAlignment - 1) & ~(kAlignment - 1);
  }

 private:
  static constexpr uint64_t kAlignment = 64;
  static constexpr uint64_t kBytes = 8u << 20;

  uint64_t free_bytes_ = 0;
  FreeAddresses free_;
  FreeAddresses words_;
  bool is_pinned_ = false;
};

}  // namespace gpuloom::executor
