// SPDX-License-Identifier: Apache-2.0
// Streams, and a marker in a stream's order.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

struct StreamCreate {
  static constexpr std::string_view kName = "StreamCreate";
  static constexpr bool kReply = true;
  struct Request {
    StreamId stream;       // unused so far, 1 … kMaxStreams - 1
    uint32_t nonblocking;  // 1: takes no part in the legacy default stream's barrier
    int32_t priority;
  };
  struct Reply {};
};

// The tenant may not name the stream any more; what was queued still runs. This is the stream's last
// command: when its ticket is done, the id is free again.
struct StreamDestroy {
  static constexpr std::string_view kName = "StreamDestroy";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
  };
  using Reply = NoReply;
};

// Does nothing: a marker in the stream's order, after everything that CUDA's rules put before it.
struct StreamMark {
  static constexpr std::string_view kName = "StreamMark";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
