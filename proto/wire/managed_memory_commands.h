// SPDX-License-Identifier: Apache-2.0
// Managed memory that migrates between host and device (docs/design/managed-memory.md). It has addresses of its own,
// at which the device finds either physical memory or pages of the arena. The tenant decides what the program finds
// there: it maps pages of the arena at these addresses, and copies between them and the device's memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"
#include "proto/wire/virtual_memory_commands.h"

namespace gpuloom::wire {

// Where mappings may begin, and how many addresses each takes at least. The driver reserves given addresses only in
// such steps (measured with 580.159); in others it takes the address for a hint and gives another.
inline constexpr uint64_t kManagedStepBytes = 32u << 20;
constexpr uint64_t RoundUpToManagedStep(uint64_t bytes) {
  return (bytes + kManagedStepBytes - 1) & ~(kManagedStepBytes - 1);
}

// Since 1.5. The end of the host range, where managed memory is mapped: from the first of these commands on the arena
// ends before it. CUDA_ERROR_NOT_SUPPORTED if memory is registered there already.
struct ManagedSpace {
  static constexpr std::string_view kName = "ManagedSpace";
  static constexpr bool kReply = true;
  struct Request {};
  struct Reply {
    uint64_t begin;
    uint64_t size_bytes;
  };
};

// Maps all of a physical memory, or, if `physical` is 0, the arena's registered pages from `pages` on, at addresses of
// ManagedSpace where nothing is mapped; with access. The pages must stay registered, and can be mapped once.
// OUT_OF_MEMORY also if the driver does not give these addresses.
struct ManagedMap {
  static constexpr std::string_view kName = "ManagedMap";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;    // a multiple of kManagedStepBytes
    uint64_t size_bytes;  // whole granules
    PhysicalId physical;
    uint32_t unused;
    HostPtr pages;
  };
  struct Reply {};
};

// Exactly one mapping. Answered when the session's work so far is done and nothing is mapped there.
struct ManagedUnmap {
  static constexpr std::string_view kName = "ManagedUnmap";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
