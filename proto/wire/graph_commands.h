// SPDX-License-Identifier: Apache-2.0
// Graphs: recorded and checked in the tenant, sent whole when they are instantiated, executed by
// one command per launch. graph_nodes.h has the format of a definition.
#pragma once

#include <cstdint>
#include <string_view>

#include "proto/wire/command.h"
#include "proto/wire/graph_nodes.h"
#include "proto/wire/handles.h"

namespace gpuloom::wire {

// An executable graph.
enum class GraphId : uint32_t {};
inline constexpr uint32_t kMaxGraphs = 1u << 16;

// In GraphInstantiate::Request::flags: the kernels' priority attributes count, not the stream's.
inline constexpr uint32_t kGraphUseNodePriority = 1;

// Up to this size a block travels in the ring; larger ones lie in the arena.
inline constexpr uint32_t kMaxInlineGraphBytes = 64u << 10;

// The definition is the payload, or in the arena if there is no payload. The executor copies it
// before reading it; it is the tenant's again once the reply is there.
struct GraphInstantiate {
  static constexpr std::string_view kName = "GraphInstantiate";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxInlineGraphBytes;
  struct Request {
    GraphId graph;   // unused so far
    uint32_t flags;  // kGraph…
    HostPtr definition;
    uint64_t definition_bytes;
  };
  // Valid even if the result is an error.
  struct Reply {
    uint32_t failed_node;  // kNoGraphNode: none in particular
    uint32_t unused;
  };
};

// Gives nodes new parameters, for the launches after this command; earlier ones run with the old
// ones. Each body has its node's kind. After an error the entries before the failed one have taken
// effect. Payload or arena as with GraphInstantiate.
struct GraphUpdate {
  static constexpr std::string_view kName = "GraphUpdate";
  static constexpr bool kReply = true;
  static constexpr uint32_t kMaxPayloadBytes = kMaxInlineGraphBytes;
  struct Request {
    GraphId graph;
    uint32_t unused;
    HostPtr update;
    uint64_t update_bytes;
  };
  // Valid even if the result is an error.
  struct Reply {
    uint32_t failed_node;  // GraphNode::index, or kNoGraphNode
    uint32_t unused;
  };
};

// Does ahead what would delay the first launch.
struct GraphUpload {
  static constexpr std::string_view kName = "GraphUpload";
  static constexpr bool kReply = false;
  struct Request {
    GraphId graph;
    StreamId stream;
  };
  using Reply = NoReply;
};

// Done, with everything in it, when completed[stream] has reached this command's ticket. Launches of
// one graph run one after the other, whatever their streams.
struct GraphLaunch {
  static constexpr std::string_view kName = "GraphLaunch";
  static constexpr bool kReply = false;
  struct Request {
    GraphId graph;
    StreamId stream;
  };
  using Reply = NoReply;
};

// The tenant may not name the graph any more; launches before this command still run.
struct GraphDestroy {
  static constexpr std::string_view kName = "GraphDestroy";
  static constexpr bool kReply = false;
  struct Request {
    GraphId graph;
  };
  using Reply = NoReply;
};

}  // namespace gpuloom::wire
