// SPDX-License-Identifier: Apache-2.0
// Allocations of device memory.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

struct MemAlloc {
  static constexpr std::string_view kName = "MemAlloc";
  static constexpr bool kReply = true;
  struct Request {
    uint64_t size_bytes;
  };
  struct Reply {
    DevicePtr address;
  };
};

// Answered when the session's work so far is done and the memory is unmapped. Never waits for
// another tenant.
struct MemFree {
  static constexpr std::string_view kName = "MemFree";
  static constexpr bool kReply = true;
  struct Request {
    DevicePtr address;
  };
  struct Reply {};
};

// MemFree without a reply.
struct MemFreeLater {
  static constexpr std::string_view kName = "MemFreeLater";
  static constexpr bool kReply = false;
  struct Request {
    DevicePtr address;
  };
  using Reply = NoReply;
};

struct MemInfo {
  static constexpr std::string_view kName = "MemInfo";
  static constexpr bool kReply = true;
  struct Request {};
  struct Reply {
    uint64_t free_bytes;
    uint64_t total_bytes;  // the allocation's quota
  };
};

}  // namespace gpuloom::wire
