// SPDX-License-Identifier: Apache-2.0
// Writes graph definitions and updates like a tenant, well formed or not. For tests and fuzzers.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "proto/wire/graph_nodes.h"

namespace gpuloom::executor {

class TestingGraph {
 public:
  void AddEmpty() { Add(wire::GraphNodeKind::kEmpty, {}); }

  void AddKernel(uint32_t kernel, std::span<const uint8_t> params,
                 const std::vector<wire::GraphAttribute>& attributes = {}, uint32_t grid = 1) {
    std::vector<uint8_t> body;
    Append(&body, wire::GraphKernel{wire::KernelId{kernel},
                                    {grid, 1, 1},
                                    {1, 1, 1},
                                    0,
                                    static_cast<uint32_t>(attributes.size()),
                                    static_cast<uint32_t>(params.size())});
    for (const wire::GraphAttribute& attribute : attributes) Append(&body, attribute);
    body.insert(body.end(), params.begin(), params.end());
    Add(wire::GraphNodeKind::kKernel, body);
  }

  // Between device addresses, both sides with the same pitches.
  void AddCopy(uint64_t to, uint64_t from, uint64_t width_bytes, uint64_t height, uint64_t depth,
               uint64_t pitch_bytes, uint64_t rows) {
    wire::GraphCopy copy = {};
    copy.to.address = to;
    copy.from.address = from;
    copy.to.pitch_bytes = copy.from.pitch_bytes = pitch_bytes;
    copy.to.rows = copy.from.rows = rows;
    copy.width_bytes = width_bytes;
    copy.height = height;
    copy.depth = depth;
    AddStruct(wire::GraphNodeKind::kCopy, copy);
  }
  void AddHostCopy(uint64_t to, uint64_t from, uint64_t bytes) {
    wire::GraphCopy copy = {};
    copy.to = {wire::GraphCopySpace::kHost, 0, to, bytes, 1, 0, 0, 0};
    copy.from = {wire::GraphCopySpace::kHost, 0, from, bytes, 1, 0, 0, 0};
    copy.width_bytes = bytes;
    copy.height = copy.depth = 1;
    AddStruct(wire::GraphNodeKind::kCopy, copy);
  }
  // Of 4-byte elements.
  void AddFill(uint64_t address, uint64_t width, uint64_t height, uint64_t pitch_bytes,
               uint32_t value = 0) {
    AddStruct(wire::GraphNodeKind::kFill,
              wire::GraphFill{address, pitch_bytes, width, height, value, 4});
  }
  void AddHostCall(uint64_t token) {
    AddStruct(wire::GraphNodeKind::kHost, wire::GraphHostCall{token});
  }
  void AddEvent(wire::GraphNodeKind kind, uint32_t event) {
    AddStruct(kind, wire::GraphEvent{wire::EventId{event}});
  }
  void AddOperation(const wire::GraphMemoryOperation& operation) {
    std::vector<uint8_t> body;
    Append(&body, wire::GraphMemoryOperations{1, 0});
    Append(&body, operation);
    Add(wire::GraphNodeKind::kMemoryOperations, body);
  }

  // The nodes of its bodies come after all nodes added before.
  void AddConditional(uint32_t reservation, uint32_t condition, uint32_t kind,
                      const std::vector<uint32_t>& body_nodes) {
    std::vector<uint8_t> body;
    Append(&body, wire::GraphConditional{wire::ReservationId{reservation}, condition, kind,
                                         static_cast<uint32_t>(body_nodes.size())});
    for (const uint32_t nodes : body_nodes) Append(&body, nodes);
    Add(wire::GraphNodeKind::kConditional, body);
  }

  void AddEdge(uint32_t from, uint32_t to) { edges_.push_back({from, to, 0, 0, 0, {}}); }
  // Makes entry `entry` refer to node `index`, as in an update.
  void Rename(uint32_t entry, uint32_t index) { nodes_[entry].index = index; }
  void Disable(uint32_t entry) { nodes_[entry].flags |= wire::kGraphNodeDisabled; }

  std::vector<uint8_t> Block() const {
    const auto node_count = static_cast<uint32_t>(nodes_.size());
    const auto edge_count = static_cast<uint32_t>(edges_.size());
    std::vector<uint8_t> block(wire::GraphBodiesOffset(node_count, edge_count));
    for (uint32_t i = 0; i < node_count; ++i) {
      wire::GraphNode node = nodes_[i];
      if (!bodies_[i].empty()) {
        node.body_offset = static_cast<uint32_t>(wire::RoundUpToGraphBody(block.size()));
        node.body_bytes = static_cast<uint32_t>(bodies_[i].size());
        block.resize(node.body_offset);
        block.insert(block.end(), bodies_[i].begin(), bodies_[i].end());
      }
      std::memcpy(block.data() + sizeof(wire::GraphHead) + i * sizeof(node), &node, sizeof(node));
    }
    if (edge_count != 0) {
      std::memcpy(block.data() + wire::GraphEdgesOffset(node_count), edges_.data(),
                  edge_count * sizeof(wire::GraphEdge));
    }
    const wire::GraphHead head{node_count, edge_count, block.size()};
    std::memcpy(block.data(), &head, sizeof(head));
    return block;
  }

 private:
  template <typename T>
  static void Append(std::vector<uint8_t>* bytes, const T& value) {
    const size_t at = bytes->size();
    bytes->resize(at + sizeof(value));
    std::memcpy(bytes->data() + at, &value, sizeof(value));
  }
  template <typename T>
  void AddStruct(wire::GraphNodeKind kind, const T& value) {
    std::vector<uint8_t> body;
    Append(&body, value);
    Add(kind, body);
  }
  void Add(wire::GraphNodeKind kind, const std::vector<uint8_t>& body) {
    nodes_.push_back({static_cast<uint32_t>(nodes_.size()), kind, 0, 0, 0});
    bodies_.push_back(body);
  }

  std::vector<wire::GraphNode> nodes_;
  std::vector<std::vector<uint8_t>> bodies_;
  std::vector<wire::GraphEdge> edges_;
};

}  // namespace gpuloom::executor
