// SPDX-License-Identifier: Apache-2.0
// Physical memory of large allocation nodes: its own as long as there is memory, and in turns with others' when there is
// none left.
#include "proto/libcuda/graph/backing.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "proto/libcuda/graph/allocation.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/testing/model.h"

namespace gpuloom::graph {
namespace {

constexpr uint64_t kMiB = 1u << 20;

class Backing : public Model {
 protected:
  void SetUp() override {
    Model::SetUp();
    library.free_bytes = 1024 * kMiB;
  }
  void TearDown() override {
    while (!execs_.empty()) End(*execs_.begin());
    for (Graph* graph : graphs_) DestroyGraph(graph);
    Model::TearDown();
    EXPECT_TRUE(library.mapped.empty());
    EXPECT_TRUE(library.handles.empty());
    EXPECT_EQ(library.free_bytes, 1024 * kMiB - taken_bytes_);
    EXPECT_EQ(MemoryUse().bytes, 0u);
    library = {};
  }

  // Leaves so much of the device's memory.
  void Leave(uint64_t bytes) {
    taken_bytes_ += library.free_bytes - bytes;
    library.free_bytes = bytes;
  }

  // A graph whose launches allocate, fill and free so many bytes, as often.
  Graph* MakeTurn(uint64_t size_bytes, bool frees = true, int count = 1) {
    Graph* const graph = MakeGraph();
    graphs_.push_back(graph);
    Graph* const own = graph_;
    graph_ = graph;
    std::vector<Node*> allocated;
    for (int i = 0; i < count; ++i) allocated.push_back(Allocate({}, size_bytes));
    for (Node* node : allocated) {
      if (frees) Free({node}, AddressOf(node));
    }
    graph_ = own;
    return graph;
  }
  static std::vector<uint64_t> MappedOf(const Graph* graph) {
    return library.mapped.at(AddressOf(graph->nodes[0]));
  }

  CUresult Instantiate(const Graph* graph, Exec** exec) {
    return WithMemory([&](Shortage* shortage) {
      const CUresult backed = BackGraph(graph, shortage);
      if (backed != CUDA_SUCCESS || shortage->any()) return backed;
      Node* culprit;
      CUgraphInstantiateResult why;
      const CUresult made = MakeExec(graph, 0, exec, &culprit, &why);
      if (made == CUDA_SUCCESS) execs_.insert(*exec);
      return made;
    });
  }
  Exec* Instantiate(const Graph* graph) {
    Exec* exec = nullptr;
    EXPECT_EQ(Instantiate(graph, &exec), CUDA_SUCCESS);
    return exec;
  }
  // How often it waited for all work.
  static uint32_t Launch(Exec* exec, const StreamRef& stream) {
    const uint32_t before = library.waits;
    const CUresult launched = WithMemory([&](Shortage* shortage) {
      CheckTurn(*exec, stream, shortage);
      if (shortage->any()) return CUDA_SUCCESS;
      NoteTurn(*exec, stream);
      library.running.insert(exec);
      return CUDA_SUCCESS;
    });
    EXPECT_EQ(launched, CUDA_SUCCESS);
    return library.waits - before;
  }
  void End(Exec* exec) {
    GraphLock lock;
    execs_.erase(exec);
    ForgetExec(exec);
    FreeExec(exec);
  }
  void End(Graph* graph) {
    GraphLock lock;
    std::erase(graphs_, graph);
    DestroyGraph(graph);
  }

  uint64_t taken_bytes_ = 0;
  std::vector<Graph*> graphs_;
  std::set<Exec*> execs_;
};

TEST_F(Backing, IsItsOwnWhileThereIsMemory) {
  Graph* const first = MakeTurn(64 * kMiB);
  Graph* const second = MakeTurn(63 * kMiB);
  EXPECT_EQ(MappedOf(first).size(), 2u) << "two blocks of 32 MiB";
  EXPECT_EQ(MemoryUse().bytes, 128 * kMiB);
  EXPECT_EQ(library.free_bytes, (1024 - 128) * kMiB);
  Exec* const one = Instantiate(first);
  Exec* const other = Instantiate(second);
  EXPECT_EQ(Launch(one, kFirst), 0u);
  EXPECT_EQ(Launch(other, kSecond), 0u) << "side by side";
  EXPECT_NE(MappedOf(first), MappedOf(second));
}

TEST_F(Backing, IsInTurnsWhenThereIsNone) {
  Leave(66 * kMiB);
  std::vector<Exec*> execs;
  for (int i = 0; i < 20; ++i)
    execs.push_back(Instantiate(MakeTurn((i % 2 == 0 ? 66 : 34) * kMiB)));
  EXPECT_EQ(MemoryUse().bytes, 66 * kMiB);
  for (Exec* exec : execs)
    EXPECT_EQ(Launch(exec, kFirst), 0u) << "one behind the other in a stream";
  EXPECT_EQ(Launch(execs[3], kSecond), 1u) << "the latest still runs in the other stream";
  EXPECT_EQ(Launch(execs[3], kFirst), 0u) << "behind its own launch";
  EXPECT_EQ(Launch(execs[5], kSecond), 1u);
  library.running.clear();
  EXPECT_EQ(Launch(execs[7], kFirst), 0u) << "nothing runs";
}

TEST_F(Backing, LeavesAnEighthToOthersIfItCan) {
  library.all_bytes = 1024 * kMiB;
  std::vector<Graph*> graphs;
  for (int i = 0; i < 20; ++i) graphs.push_back(MakeTurn(128 * kMiB));
  EXPECT_EQ(library.free_bytes, 128 * kMiB);
  for (Graph* graph : graphs) Instantiate(graph);
  EXPECT_EQ(library.free_bytes, 128 * kMiB);
  MakeTurn(8 * kMiB);  // has no block of its size to share
  EXPECT_EQ(library.free_bytes, 120 * kMiB);
}

TEST_F(Backing, OfWhatIsGoneIsNotTakenBeforeItsEnd) {
  Leave(32 * kMiB);
  Graph* const first = MakeTurn(32 * kMiB);
  Exec* const one = Instantiate(first);
  Exec* const other = Instantiate(MakeTurn(32 * kMiB));
  Launch(one, kFirst);
  End(one);  // its launch still runs
  EXPECT_EQ(Launch(other, kSecond), 1u);
  Exec* const again = Instantiate(first);
  ForgetTurnsIn(kSecond);
  EXPECT_EQ(Launch(again, kSecond), 1u) << "a stream of the same key, made later";
  End(again);
  End(first);
  EXPECT_EQ(library.running.size(), 0u) << "memory is unmapped behind all work";
  EXPECT_EQ(Launch(other, kFirst), 0u);
}

TEST_F(Backing, OfWhatALaunchLeavesAllocatedIsNobodyElses) {
  Leave(64 * kMiB);
  Graph* const left = MakeTurn(32 * kMiB, false);
  Graph* const turn = MakeTurn(32 * kMiB);
  Graph* const waiting = MakeTurn(32 * kMiB);
  ASSERT_EQ(MemoryUse().bytes, 64 * kMiB);
  ASSERT_EQ(MappedOf(waiting), MappedOf(left)) << "as long as nobody knows better";
  Exec* exec = nullptr;
  EXPECT_EQ(Instantiate(left, &exec), CUDA_ERROR_OUT_OF_MEMORY);
  End(waiting);
  Exec* const one = Instantiate(left);
  Graph* const later = MakeTurn(32 * kMiB);
  EXPECT_EQ(MappedOf(later), MappedOf(turn));
  EXPECT_EQ(Launch(one, kFirst), 0u);
  EXPECT_EQ(Launch(Instantiate(later), kSecond), 0u);
}

TEST_F(Backing, IsNotTwiceInOneGraph) {
  Leave(96 * kMiB);
  Graph* const other = MakeTurn(32 * kMiB);
  Graph* const graph = MakeTurn(32 * kMiB, true, 3);  // one of them shares a block
  ASSERT_EQ(MemoryUse().bytes, 96 * kMiB);
  Instantiate(graph);
  std::set<uint64_t> handles;
  for (int i = 0; i < 3; ++i) handles.insert(library.mapped.at(AddressOf(graph->nodes[i])).at(0));
  EXPECT_EQ(handles.size(), 3u);
  Exec* exec = nullptr;
  EXPECT_EQ(Instantiate(MakeTurn(32 * kMiB, true, 4), &exec), CUDA_ERROR_OUT_OF_MEMORY);
  Launch(Instantiate(other), kFirst);
}

TEST_F(Backing, IsRefusedWhereNoneCanBeShared) {
  Leave(8 * kMiB);
  NodeParams params;
  CUDA_MEM_ALLOC_NODE_PARAMS asked = {};
  asked.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  asked.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  asked.bytesize = 10 * kMiB;
  EXPECT_EQ(MakeAllocationIn(HandleOf(graph_), nullptr, 0, asked, &params),
            CUDA_ERROR_OUT_OF_MEMORY);
  asked.bytesize = size_t{1} << 40;  // more than any of this device
  EXPECT_EQ(MakeAllocationIn(HandleOf(graph_), nullptr, 0, asked, &params),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(library.free_bytes, 8 * kMiB) << "nothing is kept of what was made for it";
}

TEST_F(Backing, IsNotWaitedForWhenTheDeviceIsLost) {
  Leave(32 * kMiB);
  Exec* const one = Instantiate(MakeTurn(32 * kMiB));
  Exec* const other = Instantiate(MakeTurn(32 * kMiB));
  Launch(one, kFirst);
  library.lost = true;
  Shortage shortage;
  {
    GraphLock lock;
    CheckTurn(*other, kSecond, &shortage);
  }
  ASSERT_TRUE(shortage.any());
  EXPECT_EQ(shortage.Meet(), CUDA_ERROR_LAUNCH_FAILED);
}

TEST_F(Backing, GoesWithTheContext) {
  Exec* const exec = Instantiate(MakeTurn(32 * kMiB));
  Launch(exec, kFirst);
  ForgetAllExecs();
  ForgetGraphMemory();
  EXPECT_TRUE(library.mapped.empty());
  EXPECT_TRUE(library.handles.empty());
}

}  // namespace
}  // namespace gpuloom::graph
