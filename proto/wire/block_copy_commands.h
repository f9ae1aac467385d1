// SPDX-License-Identifier: Apache-2.0
// Copies and fills of blocks: rows and slices with gaps between them, arrays. The shapes are those
// of a graph's nodes (graph_nodes.h). Linear ends: host sides lie in the arena, device sides in the
// session's own memory or its modules' globals; a block with more than one row has a pitch of at
// least its width, one with more than one slice has at least its height of rows.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"
#include "proto/wire/graph_nodes.h"

namespace gpuloom::wire {

struct CopyBlock {
  static constexpr std::string_view kName = "CopyBlock";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    uint32_t unused;
    GraphCopy copy;
  };
  using Reply = NoReply;
};

struct FillBlock {
  static constexpr std::string_view kName = "FillBlock";
  static constexpr bool kReply = false;
  struct Request {
    StreamId stream;
    uint32_t unused;
    GraphFill fill;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
