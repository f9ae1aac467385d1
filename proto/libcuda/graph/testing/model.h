// SPDX-License-Identifier: Apache-2.0
// For tests of the graph model by itself: graphs of fills, captures, and the library around the model, which knows
// only what the tests say: every value is a stream, and every event was recorded or not as `recorded` says.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/graph.h"
#include "proto/libcuda/graph/library.h"

namespace gpuloom::graph {

struct TestingLibrary {
  std::set<CUevent> recorded;
  uint32_t updates = 0;
  uint64_t last_address = 0;
  std::vector<CUdeviceptr> freed;
  // Physical memory: what there still is, what has been made, where it is mapped; and waits for all work.
  uint64_t free_bytes = UINT64_MAX;
  uint64_t all_bytes = 0;
  std::map<uint64_t, uint64_t> handles;                 // handle → bytes
  std::map<CUdeviceptr, std::vector<uint64_t>> mapped;  // address → handles
  std::set<const Exec*> running;
  bool lost = false;  // what runs ends no more
  uint32_t waits = 0;
  uint32_t destroyed_execs = 0;
  uint64_t last_handle = 0;
  uint64_t last_range = 0;
  uint64_t last_physical = 0;
  uint64_t most_handles = UINT64_MAX;
  int reservations = 0;
};
extern TestingLibrary library;

inline constexpr StreamRef kFirst = {1, false, false};
inline constexpr StreamRef kSecond = {2, false, false};
inline constexpr StreamRef kBlocking = {3, false, true};
inline constexpr StreamRef kLegacy = {0, true, false};
inline constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;

inline CUevent EventOf(uintptr_t number) { return reinterpret_cast<CUevent>(number); }

class Model : public testing::Test {
 protected:
  void SetUp() override {
    library.recorded.clear();
    graph_ = MakeGraph();
  }
  void TearDown() override {
    ForgetAllCaptures();
    GraphLock lock;
    DestroyGraph(graph_);
    EXPECT_FALSE(AnyCapture());
    EXPECT_FALSE(AnyCapturedEvent());
  }

  // Nodes are told apart by the value that they fill.
  Node* Add(Graph* graph, std::vector<Node*> after, uint32_t value) {
    std::vector<Edge> edges;
    for (Node* node : after) edges.push_back({node, {}});
    NodeParams params = LinearFill(4096, value, 4, 1, nullptr);
    Node* node = nullptr;
    EXPECT_EQ(AddNode(graph, &params, edges.data(), edges.size(), &node), CUDA_SUCCESS);
    return node;
  }
  Node* AddAfter(std::vector<Node*> after, NodeParams params, CUresult expected = CUDA_SUCCESS) {
    std::vector<Edge> edges;
    for (Node* node : after) edges.push_back({node, {}});
    Node* node = nullptr;
    GraphLock lock;
    EXPECT_EQ(AddNode(graph_, &params, edges.data(), edges.size(), &node), expected);
    return node;
  }
  Node* Allocate(std::vector<Node*> after, size_t size_bytes) {
    std::vector<CUgraphNode> before;
    for (Node* node : after) before.push_back(HandleOf(node));
    CUDA_MEM_ALLOC_NODE_PARAMS asked = {};
    asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    asked.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    asked.bytesize = size_bytes;
    NodeParams params;
    EXPECT_EQ(MakeAllocationIn(HandleOf(graph_), before.data(), before.size(), asked, &params),
              CUDA_SUCCESS);
    return AddAfter(after, params);
  }
  Node* Free(std::vector<Node*> after, CUdeviceptr address, CUresult expected = CUDA_SUCCESS) {
    NodeParams params;
    EXPECT_EQ(MakeFree(address, &params), CUDA_SUCCESS);
    return AddAfter(after, params, expected);
  }
  // Makes `child` a node of the graph, which it belongs to afterwards.
  Node* Move(Graph* child, std::vector<Node*> after = {}) {
    NodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.child = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE};
    return AddAfter(after, params);
  }
  static CUdeviceptr AddressOf(const Node* node) { return node->params.alloc.params.dptr; }

  static void Begin(const StreamRef& stream, CUstreamCaptureMode mode = kThreadLocal) {
    GraphLock lock;
    ASSERT_EQ(BeginCaptureLocked(stream, nullptr, nullptr, 0, mode), CUDA_SUCCESS);
  }
  static CUresult End(const StreamRef& stream, Graph** graph) {
    GraphLock lock;
    return EndCaptureLocked(stream, graph);
  }
  static CUresult Fill(const StreamRef& stream, uint32_t value) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(Records(stream, &result, [&](NodeParams* node) {
      *node = LinearFill(4096, value, 4, 1, nullptr);
      return CUDA_SUCCESS;
    }));
    return result;
  }
  static std::vector<uint32_t> Values(const Growing<Node*>& nodes) {
    std::vector<uint32_t> values;
    for (const Node* node : nodes) values.push_back(node->params.memset.value);
    return values;
  }

  Graph* graph_ = nullptr;
};

}  // namespace gpuloom::graph
