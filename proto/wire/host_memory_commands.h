// SPDX-License-Identifier: Apache-2.0
// Host memory that the device reaches: parts of the arena.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

// Makes a page-aligned part of the arena, already populated by the tenant, reachable by the device
// (pins it).
struct HostRegister {
  static constexpr std::string_view kName = "HostRegister";
  static constexpr bool kReply = true;
  struct Request {
    HostPtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

// Exactly a registered part. Answered when the session's work so far is done; unpinned when the
// device is idle.
struct HostUnregister {
  static constexpr std::string_view kName = "HostUnregister";
  static constexpr bool kReply = true;
  struct Request {
    HostPtr address;
    uint64_t size_bytes;
  };
  struct Reply {};
};

}  // namespace gpuloom::wire
