// SPDX-License-Identifier: Apache-2.0
// Stream memory operations: writes of words and waits for words (cuStreamWriteValue*, cuStreamWaitValue*,
// cuStreamBatchMemOp).
//
// The word has 4 or 8 bytes, is aligned to them, and is in the session's device memory or in pinned parts of its
// arena. A write goes to the GPU in stream order. A wait never does: the executor holds the stream's later commands in
// its own queue and polls the word, so that a wait that never ends holds up no other stream.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"

namespace gpuloom::wire {

struct StreamWriteValue {
  static constexpr std::string_view kName = "StreamWriteValue";
  static constexpr bool kReply = false;
  struct Request {
    uint64_t address;
    uint64_t value;
    StreamId stream;
    uint32_t word_bytes;  // 4 or 8
  };
  using Reply = NoReply;
};

struct StreamWaitValue {
  static constexpr std::string_view kName = "StreamWaitValue";
  static constexpr bool kReply = false;
  struct Request {
    uint64_t address;
    uint64_t value;
    StreamId stream;
    uint32_t word_bytes;  // 4 or 8
    uint32_t condition;   // CUstreamWaitValue_flags without FLUSH
    uint32_t unused;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
