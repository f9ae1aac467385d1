// SPDX-License-Identifier: Apache-2.0
// Pinned memory through which small copies from the ring go to the device. From pageable memory the
// driver may make the caller wait for room of its own; here a session that has its share in use
// waits in its queue, and the ring thread never does. Owned by the loop, ring thread only.
#pragma once

#include <cstdint>
#include <span>

#include "agent/executor/device/device.h"
#include "agent/executor/memory/device_space.h"
#include "agent/executor/session/tenant.h"

namespace gpuloom::executor {

class Staging {
 public:
  // What one session may have in use for copies: 16 of the largest inline copies.
  static constexpr uint64_t kSessionBytes = 1u << 20;
  // And all sessions of a tenant, the words of their graphs included.
  static constexpr uint64_t kTenantBytes = 2u << 20;

  // Without pinned memory (the driver refused it) Copy always answers nullptr.
  void Start(Device* device);

  // A pinned copy of `bytes`, or nullptr: no room, or the tenant's share is in use. Give it back when the
  // device has read it. Without a tenant: the executor's own.
  uint8_t* Copy(Tenant* tenant, std::span<const uint8_t> bytes);
  void Give(Tenant* tenant, uint8_t* copy, uint64_t size_bytes);

  // What a copy of this size takes.
  static constexpr uint64_t CostBytes(uint64_t size_bytes) {
    return (size_bytes + kAlignment - 1) & ~(kAlignment - 1);
  }

 private:
  static constexpr uint64_t kAlignment = 64;
  static constexpr uint64_t kBytes = 8u << 20;

  FreeAddresses free_;
};

}  // namespace gpuloom::executor
