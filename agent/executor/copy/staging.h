// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which small copies from the ring go to the device. For pageable memory the
// driver may block the caller until its own staging buffers have room; here a session that has used up
// its share waits in its queue, and the ring thread never blocks. Owned by the loop; ring thread only.
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
  // Limit for all sessions of a tenant, including the words of their graphs.
  static constexpr uint64_t kTenantBytes = 2u << 20;

  // Without pinned memory (the driver refused it) Copy always returns nullptr.
  void Start(Device* device);

  // Returns a pinned copy of `bytes`, or nullptr if there is no room or the tenant has used up its share. Return it
  // with Give when the device has read it. `tenant` is nullptr for the executor itself.
  uint8_t* Copy(Tenant* tenant, std::span<const uint8_t> bytes);
  void Give(Tenant* tenant, uint8_t* copy, uint64_t size_bytes);

  // Bytes of staging memory that a copy of this size uses.
  static constexpr uint64_t CostBytes(uint64_t size_bytes) {
    return (size_bytes + kAlignment - 1) & ~(kAlignment - 1);
  }

 private:
  static constexpr uint64_t kAlignment = 64;
  static constexpr uint64_t kBytes = 8u << 20;

  FreeAddresses free_;
};

}  // namespace gpuloom::executor
