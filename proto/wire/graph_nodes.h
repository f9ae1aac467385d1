// SPDX-License-Identifier: Apache-2.0
// A graph's definition on the wire: one block of bytes, which the executor copies before reading it.
//
//   +-----------+----------------------+----------------------+-------------------------------+
//   | GraphHead | GraphNode × nodes    | GraphEdge × edges    | bodies, each at 16n bytes     |
//   +-----------+----------------------+----------------------+-------------------------------+
//
// Nodes are in topological order: an edge leads from a lower to a higher index, so a definition cannot have cycles.
// The tenant flattens child graphs (their nodes between two empty ones) and handles the memory of allocation nodes
// itself; neither is a kind here. Edges refer to nodes by their position.
//
// Bodies are in the order of their nodes and do not overlap: what a block makes the executor keep is bounded by its size.
//
// The bodies of conditional nodes follow the graph's own nodes, in the order of their owners (graph_scopes.h); edges
// stay within one.
//
// An update (GraphUpdate) is a block of the same format without edges: GraphNode::index says which node of the
// executable graph gets the body; without a body only its flags change.
//
// GraphReader checks the format only: offsets, sizes, kinds, order. The executor checks whether ids and addresses are
// the session's own. Offsets and sizes are in bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "proto/wire/handles.h"
#include "proto/wire/launch_commands.h"
#include "proto/wire/wire_struct.h"

namespace gpuloom::wire {

// The largest graphs we know of (whole training steps) have some 30,000 nodes.
inline constexpr uint32_t kMaxGraphNodes = 1u << 17;
inline constexpr uint32_t kMaxGraphEdges = 1u << 20;
inline constexpr uint64_t kMaxGraphBytes = 256u << 20;
inline constexpr uint32_t kGraphBodyAlignment = 16;
inline constexpr uint32_t kNoGraphNode = UINT32_MAX;

struct GraphHead {
  uint32_t nodes;
  uint32_t edges;
  uint64_t size_bytes;  // of the whole block
};
static_assert(WireStruct<GraphHead> && sizeof(GraphHead) == 16);

enum class GraphNodeKind : uint16_t {
  kEmpty,             // no body
  kKernel,            // GraphKernel, attributes, parameters
  kCopy,              // GraphCopy
  kFill,              // GraphFill
  kHost,              // GraphHostCall
  kEventRecord,       // GraphEvent
  kEventWait,         // GraphEvent
  kMemoryOperations,  // GraphMemoryOperations, operations
  kConditional        // GraphConditional, how many nodes each body has; in definitions only
};
inline constexpr uint16_t kGraphNodeKinds = 9;

// Kernels, copies and fills only; in updates only.
inline constexpr uint16_t kGraphNodeDisabled = 1;

struct GraphNode {
  uint32_t index;  // its position; in an update the position of the node to change
  GraphNodeKind kind;
  uint16_t flags;        // kGraphNode…
  uint32_t body_offset;  // from the block's start
  uint32_t body_bytes;   // 0: an empty node, or an update of the flags alone
};
static_assert(WireStruct<GraphNode> && sizeof(GraphNode) == 16);

// With CUgraphEdgeData's fields; all zero is a full dependency.
struct GraphEdge {
  uint32_t from;
  uint32_t to;
  uint8_t from_port;
  uint8_t to_port;
  uint8_t type;
  uint8_t unused[5];
};
static_assert(WireStruct<GraphEdge> && sizeof(GraphEdge) == 16);

// CUlaunchAttribute, whose value is 64 bytes in every version of CUDA.
struct GraphAttribute {
  uint32_t id;  // CUlaunchAttributeID
  uint32_t unused;
  uint8_t value[64];
};
static_assert(WireStruct<GraphAttribute> && sizeof(GraphAttribute) == 72);
inline constexpr uint32_t kMaxGraphAttributes = 32;

// Followed by: GraphAttribute × attributes, then the packed parameters, exactly KernelGet's param_bytes.
struct GraphKernel {
  KernelId kernel;
  uint32_t grid[3];
  uint32_t block[3];
  uint32_t dynamic_shared_bytes;
  uint32_t attributes;
  uint32_t param_bytes;
};
static_assert(WireStruct<GraphKernel> && sizeof(GraphKernel) == 40);

// Linear ends begin at `address`, with row and slice pitches of pitch_bytes and pitch_bytes * rows. An array's end
// begins at x_bytes, y, z of the array.
enum class GraphCopySpace : uint32_t { kDevice, kHost, kArray };
struct GraphCopyEnd {
  GraphCopySpace space;
  uint32_t array;
  uint64_t address;
  uint64_t pitch_bytes;
  uint64_t rows;
  uint64_t x_bytes;
  uint64_t y;
  uint64_t z;
};
static_assert(WireStruct<GraphCopyEnd>);

struct GraphCopy {
  GraphCopyEnd to;
  GraphCopyEnd from;
  uint64_t width_bytes;
  uint64_t height;
  uint64_t depth;
};
static_assert(WireStruct<GraphCopy>);

struct GraphFill {
  uint64_t address;
  uint64_t pitch_bytes;  // unused with one row
  uint64_t width;        // elements
  uint64_t height;
  uint32_t value;
  uint32_t element_bytes;  // 1, 2 or 4
};
static_assert(WireStruct<GraphFill> && sizeof(GraphFill) == 40);

// A function of the tenant's. The executor requests it by the token, and the graph continues after it when the tenant
// reports that it has returned.
struct GraphHostCall {
  uint64_t token;
};
static_assert(WireStruct<GraphHostCall>);

// An event of the session's. A record counts as done when the launch is done; a wait is for the
// latest record before the launch.
struct GraphEvent {
  EventId event;
};
static_assert(WireStruct<GraphEvent>);

// Followed by: GraphMemoryOperation × operations.
struct GraphMemoryOperations {
  uint32_t operations;
  uint32_t unused;
};
static_assert(WireStruct<GraphMemoryOperations>);
inline constexpr uint32_t kMaxGraphMemoryOperations = 256;  // as CUDA allows

// One of CUstreamBatchMemOpParams.
struct GraphMemoryOperation {
  uint32_t operation;  // CUstreamBatchMemOpType
  uint32_t flags;
  uint64_t address;
  uint64_t value;
};
static_assert(WireStruct<GraphMemoryOperation> && sizeof(GraphMemoryOperation) == 24);

// A driver graph created for handles before the definition (conditional_commands.h).
enum class ReservationId : uint32_t {};
inline constexpr uint32_t kMaxGraphBodies = 1024;  // of one node
inline constexpr uint32_t kMaxGraphDepth = 16;     // bodies in bodies

// Followed by: uint32_t × bodies, the number of nodes of each. All in one definition name one reservation.
struct GraphConditional {
  ReservationId reservation;
  uint32_t condition;  // the number of the handle in the reservation
  uint32_t kind;       // CUgraphConditionalNodeType
  uint32_t bodies;
};
static_assert(WireStruct<GraphConditional> && sizeof(GraphConditional) == 16);

// Where the parts are.
constexpr uint64_t GraphEdgesOffset(uint32_t nodes) {
  return sizeof(GraphHead) + uint64_t{nodes} * sizeof(GraphNode);
}
constexpr uint64_t GraphBodiesOffset(uint32_t nodes, uint32_t edges) {
  return GraphEdgesOffset(nodes) + uint64_t{edges} * sizeof(GraphEdge);
}
constexpr uint64_t RoundUpToGraphBody(uint64_t bytes) {
  return (bytes + kGraphBodyAlignment - 1) & ~uint64_t{kGraphBodyAlignment - 1};
}

// The smallest body of a kind, which is read as that kind's struct.
constexpr uint32_t GraphBodyBytes(GraphNodeKind kind) {
  switch (kind) {
    case GraphNodeKind::kEmpty:
      return 0;
    case GraphNodeKind::kKernel:
      return sizeof(GraphKernel);
    case GraphNodeKind::kCopy:
      return sizeof(GraphCopy);
    case GraphNodeKind::kFill:
      return sizeof(GraphFill);
    case GraphNodeKind::kHost:
      return sizeof(GraphHostCall);
    case GraphNodeKind::kEventRecord:
    case GraphNodeKind::kEventWait:
      return sizeof(GraphEvent);
    case GraphNodeKind::kMemoryOperations:
      return sizeof(GraphMemoryOperations);
    case GraphNodeKind::kConditional:
      return sizeof(GraphConditional);
  }
  return UINT32_MAX;
}

// Reads bytes that do not change: private memory of the reader's. Copyable; const use is safe from many threads.
class GraphReader {
 public:
  enum class Form { kDefinition, kUpdate };

  // False if the block is not well-formed; then nothing else may be called.
  [[nodiscard]] bool Parse(std::span<const uint8_t> block, Form form) {
    GraphHead head;
    if (block.size() < sizeof(head) || block.size() > kMaxGraphBytes) return false;
    std::memcpy(&head, block.data(), sizeof(head));
    if (head.nodes > kMaxGraphNodes || head.edges > kMaxGraphEdges ||
        head.size_bytes != block.size() ||
        GraphBodiesOffset(head.nodes, head.edges) > block.size() ||
        (form == Form::kUpdate && head.edges != 0)) {
      return false;
    }
    block_ = block;
    head_ = head;
    uint64_t bodies_end = GraphBodiesOffset(head.nodes, head.edges);
    for (uint32_t i = 0; i < head.nodes; ++i) {
      const GraphNode node = Node(i);
      if (form == Form::kDefinition && (node.index != i || node.flags != 0)) return false;
      if (!IsWhole(node, form, &bodies_end)) return false;
    }
    for (uint32_t i = 0; i < head.edges; ++i) {
      const GraphEdge edge = Edge(i);
      if (edge.from >= edge.to || edge.to >= head.nodes) return false;
    }
    return true;
  }

  uint32_t nodes() const { return head_.nodes; }
  uint32_t edges() const { return head_.edges; }
  GraphNode Node(uint32_t i) const {
    return At<GraphNode>(sizeof(GraphHead) + uint64_t{i} * sizeof(GraphNode));
  }
  GraphEdge Edge(uint32_t i) const {
    return At<GraphEdge>(GraphEdgesOffset(head_.nodes) + uint64_t{i} * sizeof(GraphEdge));
  }
  // The fixed part of a body; T is the struct of the node's kind.
  template <WireStruct T>
  T Body(const GraphNode& node) const {
    return At<T>(node.body_offset);
  }
  // What follows the fixed part.
  GraphAttribute Attribute(const GraphNode& node, uint32_t i) const {
    return At<GraphAttribute>(node.body_offset + sizeof(GraphKernel) +
                              uint64_t{i} * sizeof(GraphAttribute));
  }
  std::span<const uint8_t> Params(const GraphNode& node) const {
    const auto kernel = Body<GraphKernel>(node);
    return block_.subspan(node.body_offset + sizeof(GraphKernel) +
                              uint64_t{kernel.attributes} * sizeof(GraphAttribute),
                          kernel.param_bytes);
  }
  // How many a node has; 0 for other kinds.
  uint32_t Operations(const GraphNode& node) const {
    return node.kind == GraphNodeKind::kMemoryOperations && node.body_bytes != 0
               ? Body<GraphMemoryOperations>(node).operations
               : 0;
  }
  GraphMemoryOperation Operation(const GraphNode& node, uint32_t i) const {
    return At<GraphMemoryOperation>(node.body_offset + sizeof(GraphMemoryOperations) +
                                    uint64_t{i} * sizeof(GraphMemoryOperation));
  }

  // How many a node has; 0 for other kinds.
  uint32_t Bodies(const GraphNode& node) const {
    return node.kind == GraphNodeKind::kConditional ? Body<GraphConditional>(node).bodies : 0;
  }
  uint32_t BodyNodes(const GraphNode& node, uint32_t i) const {
    return At<uint32_t>(node.body_offset + sizeof(GraphConditional) + uint64_t{i} * 4);
  }

 private:
  // Parse has checked every offset used here.
  template <typename T>
  T At(uint64_t offset) const {
    T value;
    std::memcpy(&value, block_.data() + offset, sizeof(value));
    return value;
  }

  // The body is inside the block, behind the bodies before it, which end at *bodies_end, and has exactly the size that
  // it claims.
  bool IsWhole(const GraphNode& node, Form form, uint64_t* bodies_end) const {
    if (static_cast<uint16_t>(node.kind) >= kGraphNodeKinds ||
        (node.flags & ~kGraphNodeDisabled) != 0) {
      return false;
    }
    if (node.kind == GraphNodeKind::kConditional && form == Form::kUpdate) return false;
    if (node.body_bytes == 0 && (form == Form::kUpdate || node.kind == GraphNodeKind::kEmpty)) {
      return true;
    }
    if (node.body_offset % kGraphBodyAlignment != 0 || node.body_offset < *bodies_end ||
        uint64_t{node.body_offset} + node.body_bytes > block_.size()) {
      return false;
    }
    *bodies_end = uint64_t{node.body_offset} + node.body_bytes;
    uint64_t size_bytes = GraphBodyBytes(node.kind);
    if (node.body_bytes < size_bytes) return false;
    if (node.kind == GraphNodeKind::kKernel) {
      const auto kernel = Body<GraphKernel>(node);
      if (kernel.attributes > kMaxGraphAttributes || kernel.param_bytes > kMaxKernelParamBytes) {
        return false;
      }
      size_bytes += uint64_t{kernel.attributes} * sizeof(GraphAttribute) + kernel.param_bytes;
    } else if (node.kind == GraphNodeKind::kMemoryOperations) {
      const auto operations = Body<GraphMemoryOperations>(node);
      if (operations.operations > kMaxGraphMemoryOperations) return false;
      size_bytes += uint64_t{operations.operations} * sizeof(GraphMemoryOperation);
    } else if (node.kind == GraphNodeKind::kConditional) {
      const auto conditional = Body<GraphConditional>(node);
      if (conditional.bodies == 0 || conditional.bodies > kMaxGraphBodies) return false;
      size_bytes += uint64_t{conditional.bodies} * sizeof(uint32_t);
    }
    return node.body_bytes == size_bytes;
  }

  std::span<const uint8_t> block_;
  GraphHead head_{};
};

}  // namespace gpuloom::wire
