// SPDX-License-Identifier: Apache-2.0
// Linking device code: the tenant's cuLink… calls, made by the executor's driver.
#pragma once

#include "proto/wire/command.h"

namespace gpuloom::wire {

enum class LinkId : uint32_t {};
inline constexpr uint32_t kMaxLinks = 256;
inline constexpr uint32_t kMaxLinkOptions = 32;
inline constexpr uint32_t kMaxLinkNameBytes = 1024;

// One of CUDA's JIT options whose value is a plain number.
struct LinkOption {
  uint32_t option;  // CUjit_option
  uint32_t value;
};

// CUjit_option by value: this header does not include cuda.h. Buffers for logs stay with the tenant.
inline constexpr uint64_t kLinkOptionsKnown = 1u << 0 |   // registers at most
                                              1u << 1 |   // threads of a block, at least
                                              1u << 7 |   // optimisation level
                                              1u << 9 |   // target
                                              1u << 10 |  // fallback strategy
                                              1u << 11 |  // debug information
                                              1u << 12 |  // verbose log
                                              1u << 13 |  // line information
                                              1u << 14 |  // cache mode
                                              1u << 30;   // position-independent code

// What a compiler reports besides its result. The texts themselves are written into the arena, where the tenant has
// made room for them: the info log first, the error log after its capacity, each cut to its capacity and without a
// NUL.
struct JitReport {
  uint32_t wall_time_bits;  // milliseconds, a float's bits
  uint32_t threads_per_block;
  uint32_t info_bytes;
  uint32_t error_bytes;
};
// Per text. Some thousands of lines: the compiling side holds as much for every compile in progress.
inline constexpr uint32_t kMaxJitTextBytes = 64u << 10;

// Payload: LinkOption each.
struct LinkCreate {
  static constexpr std::string_view kName = "LinkCreate";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxLinkOptions * sizeof(LinkOption);
  struct Request {
    LinkId link;  // unused so far
  };
  struct Reply {};
};

// Adds input that is in the arena. Payload: options, then the name. Reply payload: the linker's error log so far.
struct LinkAdd {
  static constexpr std::string_view kName = "LinkAdd";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes =
      kMaxLinkOptions * sizeof(LinkOption) + kMaxLinkNameBytes;
  struct Request {
    LinkId link;
    uint32_t type;  // CUjitInputType
    HostPtr data;
    uint64_t data_bytes;
    uint32_t option_count;
    uint32_t unused;
  };
  struct Reply {};
};

// Reply payload: the linker's error log.
struct LinkComplete {
  static constexpr std::string_view kName = "LinkComplete";
  static constexpr bool kReply = true;
  struct Request {
    LinkId link;
  };
  struct Reply {
    uint64_t image_bytes;
  };
};

// The linked image from `offset_bytes` on (payload), as much as a reply holds.
struct LinkRead {
  static constexpr std::string_view kName = "LinkRead";
  static constexpr bool kReply = true;
  struct Request {
    LinkId link;
    uint32_t unused;
    uint64_t offset_bytes;
  };
  struct Reply {};
};

struct LinkDestroy {
  static constexpr std::string_view kName = "LinkDestroy";
  static constexpr bool kReply = true;
  struct Request {
    LinkId link;
  };
  struct Reply {};
};

// What the linker has reported since it was created.
struct LinkReport {
  static constexpr std::string_view kName = "LinkReport";
  static constexpr bool kReply = true;
  struct Request {
    LinkId link;
    uint32_t info_capacity_bytes;  // kMaxJitTextBytes at most
    HostPtr texts;                 // in the arena
    uint32_t error_capacity_bytes;
    uint32_t unused;
  };
  struct Reply {
    JitReport report;
  };
};

}  // namespace gpuloom::wire
