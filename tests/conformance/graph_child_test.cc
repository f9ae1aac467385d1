// SPDX-License-Identifier: Apache-2.0
// Child graphs that are moved into their parents: what becomes of the handle, what they may hold, what
// may be done to them.
#include <algorithm>
#include <ctime>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Order = std::vector<uint32_t>;
using Nodes = std::vector<CUgraphNode>;

constexpr auto kClone = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE;
constexpr auto kMove = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;

class ChildGraphs : public WithKernels {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12090)) GTEST_SKIP() << "CUDA 12.9 has it first";
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    journal_ = Alloc(128);
    ASSERT_EQ(Cu().cuMemsetD32_v2(journal_, 0, 32), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    append_ = Function("append");
    stream_ = Stream();
    parent_ = Create();
  }
  void TearDown() override {
    for (CUgraphExec exec : execs_) EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    for (CUgraph graph : graphs_) EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
    WithKernels::TearDown();
  }

  // Destroyed with the test, unless it is given up.
  CUgraph Create() {
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    graphs_.push_back(graph);
    return graph;
  }
  void GiveUp(CUgraph graph) { std::erase(graphs_, graph); }
  void Destroy(CUgraph graph) {
    GiveUp(graph);
    ASSERT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  }

  CUDA_KERNEL_NODE_PARAMS AppendOf(uint32_t* id) {
    values_[0] = &journal_;
    values_[1] = id;
    CUDA_KERNEL_NODE_PARAMS params{};
    params.func = append_;
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = values_;
    return params;
  }
  CUgraphNode AddAppend(CUgraph graph, uint32_t id, const Nodes& after = {}) {
    const CUDA_KERNEL_NODE_PARAMS params = AppendOf(&id);
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  // A graph that appends the ids in their order.
  CUgraph Appending(const Order& ids) {
    CUgraph graph = Create();
    Nodes last;
    for (const uint32_t id : ids) last = {AddAppend(graph, id, last)};
    return graph;
  }
  static CUgraphNodeParams ChildParams(CUgraph child, CUgraphChildGraphNodeOwnership ownership) {
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = child;
    params.graph.ownership = ownership;
    return params;
  }
  static CUresult Add(CUgraph parent, CUgraph child, CUgraphChildGraphNodeOwnership ownership,
                      CUgraphNode* node = nullptr, const Nodes& after = {}) {
    CUgraphNodeParams params = ChildParams(child, ownership);
    CUgraphNode added = nullptr;
    return Cu().cuGraphAddNode_v2(node == nullptr ? &added : node, parent, after.data(), nullptr,
                                  after.size(), &params);
  }
  CUgraphNode Move(CUgraph parent, CUgraph child, const Nodes& after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(Add(parent, child, kMove, &node, after), CUDA_SUCCESS);
    GiveUp(child);
    return node;
  }
  static CUgraph MovedGraphOf(CUgraph parent) {
    CUgraphNode node = nullptr;
    size_t count = 1;
    EXPECT_EQ(Cu().cuGraphGetNodes(parent, &node, &count), CUDA_SUCCESS);
    CUgraph child = nullptr;
    EXPECT_EQ(Cu().cuGraphChildGraphNodeGetGraph(node, &child), CUDA_SUCCESS);
    return child;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    if (exec != nullptr) execs_.push_back(exec);
    return exec;
  }
  CUresult TryInstantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    return Cu().cuGraphInstantiateWithFlags(&exec, graph, 0);
  }
  Order Run(CUgraphExec exec) {
    EXPECT_EQ(Cu().cuMemsetD32Async(journal_, 0, 1, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    const std::vector<uint32_t> words = Download<uint32_t>(journal_, 32);
    const uint32_t count = words[0] < 31 ? words[0] : 31;
    return {words.begin() + 1, words.begin() + 1 + count};
  }
  static size_t CountNodes(CUgraph graph) {
    size_t count = 99;
    EXPECT_EQ(Cu().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  // Appends 1, between an allocation and its freeing.
  CUgraph Allocating(CUdeviceptr* address) {
    CUgraph graph = Create();
    CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
    CUgraphNode allocated = nullptr, freed = nullptr;
    EXPECT_EQ(Cu().cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &asked), CUDA_SUCCESS);
    const CUgraphNode node = AddAppend(graph, 1, {allocated});
    EXPECT_EQ(Cu().cuGraphAddMemFreeNode(&freed, graph, &node, 1, asked.dptr), CUDA_SUCCESS);
    *address = asked.dptr;
    return graph;
  }

  CUdeviceptr journal_ = 0;
  CUfunction append_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraph parent_ = nullptr;
  void* values_[2] = {};
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphExec> execs_;
};

TEST_F(ChildGraphs, AMovedOneRunsInItsPlace) {
  CUgraph child = Appending({2, 3});
  const CUgraphNode first = AddAppend(parent_, 1);
  const CUgraphNode node = Move(parent_, child, {first});
  AddAppend(parent_, 4, {node});
  CUgraphExec exec = Instantiate(parent_);
  EXPECT_EQ(Run(exec), (Order{1, 2, 3, 4}));
  EXPECT_EQ(Run(exec), (Order{1, 2, 3, 4}));
}

TEST_F(ChildGraphs, AMovedOneKeepsItsHandleAndItsNodes) {
  CUgraph child = Appending({2});
  CUgraphNodeParams params = ChildParams(child, kMove);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddNode_v2(&node, parent_, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  GiveUp(child);
  EXPECT_EQ(params.graph.graph, child);
  CUgraph embedded = nullptr;
  ASSERT_EQ(Cu().cuGraphChildGraphNodeGetGraph(node, &embedded), CUDA_SUCCESS);
  EXPECT_EQ(embedded, child);
  CUgraphNode inner = nullptr;
  size_t count = 1;
  ASSERT_EQ(Cu().cuGraphGetNodes(child, &inner, &count), CUDA_SUCCESS);
  EXPECT_EQ(CountNodes(parent_), 1u);
  // It may still be added to, and its nodes be changed.
  AddAppend(child, 3, {inner});
  uint32_t id = 5;
  const CUDA_KERNEL_NODE_PARAMS changed = AppendOf(&id);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(inner, &changed), CUDA_SUCCESS);
  EXPECT_EQ(Run(Instantiate(parent_)), (Order{5, 3}));
}

TEST_F(ChildGraphs, NodesOfAMovedOneChangeInTheExecutableGraph) {
  CUgraph child = Create();
  const CUgraphNode first = AddAppend(child, 1);
  const CUgraphNode second = AddAppend(child, 2, {first});
  Move(parent_, child);
  CUgraphExec exec = Instantiate(parent_);
  for (uint32_t id = 10; id < 13; ++id) {
    const CUDA_KERNEL_NODE_PARAMS changed = AppendOf(&id);
    ASSERT_EQ(Cu().cuGraphExecKernelNodeSetParams_v2(exec, second, &changed), CUDA_SUCCESS);
    EXPECT_EQ(Run(exec), (Order{1, id}));
  }
  ASSERT_EQ(Cu().cuGraphNodeSetEnabled(exec, first, 0), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{12});
}

TEST_F(ChildGraphs, MovedOnesLieInsideOfEachOther) {
  CUgraph child = Appending({2});
  CUgraph grandchild = Appending({1});
  Move(child, grandchild);
  Move(parent_, child);
  CUgraph clone = nullptr;
  ASSERT_EQ(Cu().cuGraphClone(&clone, parent_), CUDA_SUCCESS);
  graphs_.push_back(clone);
  Destroy(parent_);
  Order order = Run(Instantiate(clone));
  std::sort(order.begin(), order.end());
  EXPECT_EQ(order, (Order{1, 2}));
}

TEST_F(ChildGraphs, AnothersIsNobodyElses) {
  CUgraph other = Create();
  CUgraph moved = Appending({1});
  Move(parent_, moved);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Add(parent_, Appending({2}), kClone, &node), CUDA_SUCCESS);
  CUgraph cloned = nullptr;
  ASSERT_EQ(Cu().cuGraphChildGraphNodeGetGraph(node, &cloned), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(Appending({7}));
  for (CUgraph child : {moved, cloned}) {
    EXPECT_EQ(Cu().cuGraphDestroy(child), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(TryInstantiate(child), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(Add(other, child, kMove), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(Add(other, child, kClone), CUDA_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(Add(parent_, child, kMove), CUDA_ERROR_NOT_SUPPORTED);
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(Cu().cuGraphExecUpdate_v2(exec, child, &info), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(CountNodes(child), 1u);
    // But it may be copied.
    CUgraph clone = nullptr;
    ASSERT_EQ(Cu().cuGraphClone(&clone, child), CUDA_SUCCESS);
    graphs_.push_back(clone);
    EXPECT_EQ(Run(Instantiate(clone)), Order{child == moved ? 1u : 2u});
  }
  EXPECT_EQ(CountNodes(other), 0u);
  EXPECT_EQ(CountNodes(parent_), 2u);
  EXPECT_EQ(Run(exec), Order{7});
}

TEST_F(ChildGraphs, AnExecutableGraphOutlivesTheMoveOfItsGraph) {
  CUgraph child = Appending({1});
  CUgraphExec exec = Instantiate(child);
  Move(parent_, child);
  EXPECT_EQ(Run(exec), Order{1});
  EXPECT_EQ(Run(Instantiate(parent_)), Order{1});
}

TEST_F(ChildGraphs, WhatCannotBeMovedStaysTheProgramsOwn) {
  CUgraph child = Appending({1});
  CUgraph other = Create();
  const CUgraphNode elsewhere = AddAppend(other, 2);
  EXPECT_EQ(Add(parent_, child, kMove, nullptr, {elsewhere}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Add(parent_, nullptr, kMove), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CountNodes(parent_), 0u);
  EXPECT_EQ(Run(Instantiate(child)), Order{1});
  Destroy(child);
}

TEST_F(ChildGraphs, AMovedOneGoesWithItsNode) {
  int destroyed = 0;
  CUgraph child = Appending({1});
  CUuserObject object = nullptr;
  ASSERT_EQ(Cu().cuUserObjectCreate(
                &object, &destroyed, [](void* data) { ++*static_cast<int*>(data); }, 1,
                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphRetainUserObject(child, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
            CUDA_SUCCESS);
  const CUgraphNode node = Move(parent_, child);
  EXPECT_EQ(static_cast<volatile int&>(destroyed), 0);
  ASSERT_EQ(Cu().cuGraphDestroyNode(node), CUDA_SUCCESS);
  // The driver may call it later, on a thread of its own.
  for (int i = 0; i < 2000 && static_cast<volatile int&>(destroyed) == 0; ++i) {
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  EXPECT_EQ(destroyed, 1);
  EXPECT_EQ(CountNodes(parent_), 0u);
}

TEST_F(ChildGraphs, AnExecutableGraphIsUpdatedFromOneWithAnotherChild) {
  const CUgraphNode node = Move(parent_, Appending({1}));
  CUgraphExec exec = Instantiate(parent_);
  CUgraph cloned = Create();
  ASSERT_EQ(Add(cloned, Appending({2}), kClone), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(Cu().cuGraphExecUpdate_v2(exec, cloned, &info), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{2});
  CUgraph moved = Create();
  Move(moved, Appending({3}));
  EXPECT_EQ(Cu().cuGraphExecUpdate_v2(exec, moved, &info), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{3});
  EXPECT_EQ(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, Appending({4})), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{4});
  // From one that is another's, or its own; nothing is moved.
  EXPECT_EQ(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, MovedGraphOf(moved)), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{3});
  EXPECT_EQ(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, MovedGraphOf(parent_)),
            CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{1});
  CUgraph own = Appending({5});
  CUgraphNodeParams params = ChildParams(own, kMove);
  EXPECT_EQ(Cu().cuGraphExecNodeSetParams(exec, node, &params), CUDA_SUCCESS);
  EXPECT_EQ(Run(exec), Order{5});
  Destroy(own);
}

TEST_F(ChildGraphs, ACloneKeepsTheHandleThatWasPassed) {
  CUgraph child = Appending({1});
  CUgraphNodeParams params = ChildParams(child, kClone);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddNode_v2(&node, parent_, nullptr, nullptr, 0, &params), CUDA_SUCCESS);
  EXPECT_EQ(params.graph.graph, child);
  CUgraph cloned = nullptr;
  ASSERT_EQ(Cu().cuGraphChildGraphNodeGetGraph(node, &cloned), CUDA_SUCCESS);
  EXPECT_NE(cloned, child);
}

TEST_F(ChildGraphs, EmptyOnesOrderWhatIsBehindThem) {
  const CUgraphNode first = AddAppend(parent_, 1);
  const CUgraphNode moved = Move(parent_, Create(), {first});
  CUgraphNode cloned = nullptr;
  ASSERT_EQ(Add(parent_, Create(), kClone, &cloned, {moved}), CUDA_SUCCESS);
  AddAppend(parent_, 2, {cloned});
  EXPECT_EQ(Run(Instantiate(parent_)), (Order{1, 2}));
}

TEST_F(ChildGraphs, AMovedOneIsCapturedInto) {
  CUgraph child = Create();
  Move(parent_, child);
  ASSERT_EQ(Cu().cuStreamBeginCaptureToGraph(stream_, child, nullptr, nullptr, 0,
                                             CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  EXPECT_EQ(Launch(append_, 1, 1, stream_, journal_, uint32_t{1}), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  EXPECT_EQ(Cu().cuMemAllocAsync(&memory, 4096, stream_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Launch(append_, 1, 1, stream_, journal_, uint32_t{2}), CUDA_SUCCESS);
  CUgraph captured = nullptr;
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, &captured), CUDA_SUCCESS);
  EXPECT_EQ(captured, child);
  EXPECT_EQ(Run(Instantiate(parent_)), (Order{1, 2}));
}

TEST_F(ChildGraphs, OnlyAMovedOneAllocates) {
  CUdeviceptr address = 0;
  CUgraph child = Allocating(&address);
  EXPECT_EQ(Add(parent_, child, kClone), CUDA_ERROR_NOT_SUPPORTED);
  const CUgraphNode node = Move(parent_, child);
  CUgraphNode more = nullptr;
  CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
  EXPECT_EQ(Cu().cuGraphAddMemAllocNode(&more, child, nullptr, 0, &asked),
            CUDA_ERROR_NOT_SUPPORTED);
  CUgraph clone = nullptr;
  EXPECT_EQ(Cu().cuGraphClone(&clone, parent_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuGraphClone(&clone, child), CUDA_ERROR_NOT_SUPPORTED);
  const CUgraphNode last = AddAppend(parent_, 2, {node});
  CUgraphExec exec = Instantiate(parent_);
  EXPECT_EQ(Run(exec), (Order{1, 2}));
  EXPECT_EQ(Run(exec), (Order{1, 2}));
  // The memory is there once.
  EXPECT_EQ(TryInstantiate(parent_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Add(Create(), parent_, kMove), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuGraphExecChildGraphNodeSetParams(exec, node, child),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  CUgraphNode twice = nullptr;
  EXPECT_EQ(Cu().cuGraphAddMemFreeNode(&twice, parent_, &node, 1, address),
            CUDA_ERROR_INVALID_VALUE);
  // What allocates stays, and what orders it.
  EXPECT_EQ(Cu().cuGraphRemoveDependencies_v2(parent_, &node, &last, nullptr, 1),
            CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuGraphDestroyNode(node), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Run(exec), (Order{1, 2}));
}

TEST_F(ChildGraphs, AMovedOneAllocatesWhatItsParentFrees) {
  CUgraph child = Create();
  CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
  CUgraphNode allocated = nullptr, freed = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemAllocNode(&allocated, child, nullptr, 0, &asked), CUDA_SUCCESS);
  const CUgraphNode node = Move(parent_, child);
  CUgraphExec leaking = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&leaking, parent_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphLaunch(leaking, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphLaunch(leaking, stream_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(asked.dptr), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphExecDestroy(leaking), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphAddMemFreeNode(&freed, parent_, &node, 1, asked.dptr), CUDA_SUCCESS);
  AddAppend(parent_, 1, {freed});
  CUgraphExec exec = Instantiate(parent_);
  EXPECT_EQ(Run(exec), Order{1});
  EXPECT_EQ(Run(exec), Order{1});
}

}  // namespace
}  // namespace gpuloom::conformance
