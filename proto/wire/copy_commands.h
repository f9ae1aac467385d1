// SPDX-License-Identifier: Apache-2.0
// Copies of bytes, and fills. Those of blocks with pitches, and of arrays: block_copy_commands.h.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

inline constexpr uint32_t kMaxInlineCopyBytes =
    64u << 10;  // up to here CUDA itself makes pageable HtoD asynchronous

enum class CopyKind : uint32_t { kHostToDevice, kDeviceToHost, kDeviceToDevice, kHostToHost };

// Host sides lie in the arena; device sides in the session's own memory or its modules' globals.
struct Copy {
  static constexpr std::string_view kName = "Copy";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    CopyKind kind;
    uint64_t destination;
    uint64_t source;
    uint64_t size_bytes;
  };
  using Reply = NoReply;
};

// A small host-to-device copy that travels in the ring (payload).
struct CopyInline {
  static constexpr std::string_view kName = "CopyInline";
  static constexpr bool kReply = false;
  static constexpr uint32_t kMaxPayloadBytes = kMaxInlineCopyBytes;
  struct Request {
    StreamId stream;
    uint32_t unused;
    DevicePtr destination;
  };
  using Reply = NoReply;
};

// Writes `count` elements of 1, 2 or 4 bytes, to device memory or to the arena's registered memory.
struct Fill {
  static constexpr std::string_view kName = "Fill";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    uint32_t element_bytes;
    uint32_t value;
    uint32_t unused;
    uint64_t destination;
    uint64_t count;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
