// SPDX-License-Identifier: Apache-2.0
#include "proto/wire/graph_nodes.h"

#include <gtest/gtest.h>

#include <vector>

namespace gpuloom::wire {
namespace {

using Form = GraphReader::Form;

// A block that is well formed until a test changes it.
class Block {
 public:
  Block(uint32_t nodes, uint32_t edges) : bytes_(GraphBodiesOffset(nodes, edges)) {
    Put(0, GraphHead{nodes, edges, bytes_.size()});
  }

  template <typename T>
  void Put(uint64_t offset, const T& value) {
    std::memcpy(bytes_.data() + offset, &value, sizeof(value));
  }
  void SetNode(uint32_t i, const GraphNode& node) {
    Put(sizeof(GraphHead) + i * sizeof(GraphNode), node);
  }
  void SetEdge(uint32_t i, uint32_t from, uint32_t to) {
    GraphHead head;
    std::memcpy(&head, bytes_.data(), sizeof(head));
    Put(GraphEdgesOffset(head.nodes) + i * sizeof(GraphEdge), GraphEdge{from, to, 0, 0, 0, {}});
  }
  // The offset of a body of so many bytes behind everything else.
  uint32_t AddBody(uint32_t size_bytes) {
    const auto offset = static_cast<uint32_t>(RoundUpToGraphBody(bytes_.size()));
    bytes_.resize(offset + size_bytes);
    GraphHead head;
    std::memcpy(&head, bytes_.data(), sizeof(head));
    head.size_bytes = bytes_.size();
    Put(0, head);
    return offset;
  }
  bool Parses(Form form = Form::kDefinition) const { return GraphReader().Parse(bytes_, form); }
  std::vector<uint8_t>& bytes() { return bytes_; }

 private:
  std::vector<uint8_t> bytes_;
};

Block Chain() {
  Block block(3, 2);
  for (uint32_t i = 0; i < 3; ++i) block.SetNode(i, {i, GraphNodeKind::kEmpty, 0, 0, 0});
  block.SetEdge(0, 0, 1);
  block.SetEdge(1, 1, 2);
  return block;
}

Block OneKernel(uint32_t attributes, uint32_t param_bytes, uint32_t body_bytes) {
  Block block(1, 0);
  const uint32_t offset = block.AddBody(body_bytes);
  block.SetNode(0, {0, GraphNodeKind::kKernel, 0, offset, body_bytes});
  block.Put(offset, GraphKernel{KernelId{1}, {1, 1, 1}, {1, 1, 1}, 0, attributes, param_bytes});
  return block;
}

TEST(GraphReader, ReadsWhatWasWritten) {
  Block block = OneKernel(1, 12, sizeof(GraphKernel) + sizeof(GraphAttribute) + 12);
  const uint32_t body = block.bytes().size() - (sizeof(GraphKernel) + sizeof(GraphAttribute) + 12);
  block.Put(body + sizeof(GraphKernel), GraphAttribute{8, 0, {7}});
  block.bytes().back() = 0x5a;
  GraphReader reader;
  ASSERT_TRUE(reader.Parse(block.bytes(), Form::kDefinition));
  ASSERT_EQ(reader.nodes(), 1u);
  const GraphNode node = reader.Node(0);
  EXPECT_EQ(reader.Body<GraphKernel>(node).kernel, KernelId{1});
  EXPECT_EQ(reader.Attribute(node, 0).id, 8u);
  EXPECT_EQ(reader.Attribute(node, 0).value[0], 7);
  ASSERT_EQ(reader.Params(node).size(), 12u);
  EXPECT_EQ(reader.Params(node).back(), 0x5a);
}

TEST(GraphReader, AnEmptyGraphIsAGraph) { EXPECT_TRUE(Block(0, 0).Parses()); }

TEST(GraphReader, ReadsEdges) {
  Block block = Chain();
  GraphReader reader;
  ASSERT_TRUE(reader.Parse(block.bytes(), Form::kDefinition));
  ASSERT_EQ(reader.edges(), 2u);
  EXPECT_EQ(reader.Edge(1).from, 1u);
  EXPECT_EQ(reader.Edge(1).to, 2u);
}

TEST(GraphReader, UpdatesNameAnyNodeAndMayHaveNoBody) {
  Block block(1, 0);
  block.SetNode(0, {77, GraphNodeKind::kKernel, kGraphNodeDisabled, 0, 0});
  EXPECT_TRUE(block.Parses(Form::kUpdate));
  EXPECT_FALSE(block.Parses(Form::kDefinition));
}

TEST(GraphReader, Malicious_EveryCutIsRefused) {
  Block block = OneKernel(1, 12, sizeof(GraphKernel) + sizeof(GraphAttribute) + 12);
  const std::vector<uint8_t> whole = block.bytes();
  ASSERT_TRUE(block.Parses());
  for (size_t size = 0; size < whole.size(); ++size) {
    // Also when the head agrees with the cut.
    std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    EXPECT_FALSE(GraphReader().Parse(cut, Form::kDefinition)) << size;
    if (size < sizeof(GraphHead)) continue;
    const GraphHead head{1, 0, size};
    std::memcpy(cut.data(), &head, sizeof(head));
    EXPECT_FALSE(GraphReader().Parse(cut, Form::kDefinition)) << size;
  }
}

TEST(GraphReader, Malicious_HugeCounts) {
  for (const uint32_t huge : {kMaxGraphNodes + 1, UINT32_MAX}) {
    Block block = Chain();
    block.Put(0, GraphHead{huge, 2, block.bytes().size()});
    EXPECT_FALSE(block.Parses());
    block.Put(0, GraphHead{3, huge, block.bytes().size()});
    EXPECT_FALSE(block.Parses());
    EXPECT_FALSE(OneKernel(huge, 0, sizeof(GraphKernel)).Parses());
    EXPECT_FALSE(OneKernel(0, huge, sizeof(GraphKernel)).Parses());
  }
}

TEST(GraphReader, Malicious_EdgesThatLeadBackOrNowhere) {
  Block back = Chain();
  back.SetEdge(1, 2, 1);
  EXPECT_FALSE(back.Parses());
  Block itself = Chain();
  itself.SetEdge(1, 1, 1);
  EXPECT_FALSE(itself.Parses());
  Block nowhere = Chain();
  nowhere.SetEdge(1, 1, 3);
  EXPECT_FALSE(nowhere.Parses());
}

TEST(GraphReader, Malicious_BodiesElsewhere) {
  const uint32_t bytes = sizeof(GraphKernel);
  for (const uint32_t offset : {0u, 16u, 33u, 48u, 0xfffffff0u}) {
    Block block = OneKernel(0, 0, bytes);
    const uint32_t right = static_cast<uint32_t>(block.bytes().size()) - bytes;
    if (offset == right) continue;
    block.SetNode(0, {0, GraphNodeKind::kKernel, 0, offset, bytes});
    EXPECT_FALSE(block.Parses()) << offset;
  }
}

TEST(GraphReader, Malicious_BodiesThatOverlap) {
  const uint32_t bytes = sizeof(GraphKernel) + 24;
  Block block(3, 0);
  uint32_t offsets[3];
  for (uint32_t& offset : offsets) {
    offset = block.AddBody(bytes);
    block.Put(offset, GraphKernel{KernelId{1}, {1, 1, 1}, {1, 1, 1}, 0, 0, 24});
  }
  const auto parses = [&](uint32_t first, uint32_t second, uint32_t third) {
    block.SetNode(0, {0, GraphNodeKind::kKernel, 0, first, bytes});
    block.SetNode(1, {1, GraphNodeKind::kKernel, 0, second, bytes});
    block.SetNode(2, {2, GraphNodeKind::kKernel, 0, third, bytes});
    return block.Parses() && block.Parses(Form::kUpdate);
  };
  EXPECT_TRUE(parses(offsets[0], offsets[1], offsets[2]));
  EXPECT_FALSE(parses(offsets[0], offsets[0], offsets[0]));
  EXPECT_FALSE(parses(offsets[0], offsets[2], offsets[1]));
  // Partly.
  block.Put(offsets[0] + 48, GraphKernel{KernelId{1}, {1, 1, 1}, {1, 1, 1}, 0, 0, 24});
  EXPECT_FALSE(parses(offsets[0], offsets[0] + 48, offsets[2]));
}

TEST(GraphReader, Malicious_KindsAndIndices) {
  Block kind = Chain();
  kind.SetNode(1, {1, static_cast<GraphNodeKind>(kGraphNodeKinds), 0, 0, 0});
  EXPECT_FALSE(kind.Parses());
  Block index = Chain();
  index.SetNode(1, {2, GraphNodeKind::kEmpty, 0, 0, 0});
  EXPECT_FALSE(index.Parses());
  Block no_body = Chain();
  no_body.SetNode(1, {1, GraphNodeKind::kCopy, 0, 0, 0});
  EXPECT_FALSE(no_body.Parses());
}

}  // namespace
}  // namespace gpuloom::wire
