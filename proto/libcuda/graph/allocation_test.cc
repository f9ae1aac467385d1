// SPDX-License-Identifier: Apache-2.0
// Memory of allocation nodes: whose it is when, and when it is reused.
#include "proto/libcuda/graph/allocation.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/testing/model.h"

namespace gpuloom::graph {
namespace {

TEST_F(Model, MemoryLastsAsLongAsANodeOrTheProgramHasIt) {
  Node* node = Allocate({}, 64);
  const CUdeviceptr address = AddressOf(node);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_SUCCESS);
  ApplyLaunch(*exec);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_ERROR_INVALID_VALUE);
  CUresult result;
  EXPECT_TRUE(FreesGraphMemory(address, &result));
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_TRUE(FreesGraphMemory(address, &result));
  EXPECT_EQ(result, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_SUCCESS);
  ApplyLaunch(*exec);
  DestroyNode(node);
  ForgetExec(exec);
  FreeExec(exec);
  EXPECT_TRUE(library.freed.empty());
  EXPECT_EQ(MemoryUse().bytes, 64u);
  EXPECT_TRUE(FreesGraphMemory(address, &result));
  EXPECT_EQ(library.freed, std::vector<CUdeviceptr>{address});
  EXPECT_FALSE(FreesGraphMemory(address, &result));
  library.freed.clear();
}

// As the driver does (measured, 580.159.04): the program may destroy the graph that it was updated from.
TEST_F(Model, AnUpdateTakesTheOtherGraphsMemory) {
  Node* old_allocated = Allocate({}, 64);
  const CUdeviceptr old_address = AddressOf(old_allocated);
  Node* old_freed = Free({old_allocated}, old_address);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  DestroyNode(old_freed);
  DestroyNode(old_allocated);
  EXPECT_TRUE(library.freed.empty());
  Node* allocated = Allocate({}, 64);
  const CUdeviceptr address = AddressOf(allocated);
  ASSERT_NE(address, old_address);
  Node* freed = Free({allocated}, address);
  CUgraphExecUpdateResultInfo info;
  ASSERT_EQ(UpdateExec(exec, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(library.updates, 0u) << "nothing of it runs";
  EXPECT_EQ(library.freed, std::vector<CUdeviceptr>{old_address});
  DestroyNode(freed);
  DestroyNode(allocated);
  EXPECT_EQ(library.freed.size(), 1u);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_SUCCESS);
  ApplyLaunch(*exec);
  ForgetExec(exec);
  FreeExec(exec);
  EXPECT_EQ(library.freed, (std::vector<CUdeviceptr>{old_address, address}));
  library.freed.clear();
}

TEST_F(Model, MemoryIsReusedBehindItsFreeing) {
  Node* first = Allocate({}, 4096);
  Node* used = Add(graph_, {first}, 1);
  Node* freed_first = Free({used}, AddressOf(first));
  Node* between = Add(graph_, {freed_first}, 2);
  // Not behind it, too large, or so small that most of it would be wasted.
  EXPECT_NE(AddressOf(Allocate({}, 4096)), AddressOf(first));
  EXPECT_NE(AddressOf(Allocate({used}, 4096)), AddressOf(first));
  EXPECT_NE(AddressOf(Allocate({between}, 4097)), AddressOf(first));
  EXPECT_NE(AddressOf(Allocate({between}, 2047)), AddressOf(first));
  EXPECT_FALSE(graph_->reuses_memory);
  Node* second = Allocate({between}, 4000);
  EXPECT_EQ(AddressOf(second), AddressOf(first));
  EXPECT_TRUE(graph_->reuses_memory);
  // It is in use again: by this node, although it is behind the same freeing as the next.
  EXPECT_NE(AddressOf(Allocate({between}, 4096)), AddressOf(first));
  Node* freed_second = Free({second}, AddressOf(second));
  Free({freed_second}, AddressOf(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AddressOf(Allocate({freed_second}, 4096)), AddressOf(first));
}

TEST_F(Model, TheSmallestMemoryThatFitsIsReused) {
  Node* large = Allocate({}, 8192);
  Node* small = Allocate({large}, 6000);
  Node* freed_small = Free({small}, AddressOf(small));
  Node* freed_large = Free({freed_small}, AddressOf(large));
  EXPECT_EQ(AddressOf(Allocate({freed_large}, 5000)), AddressOf(small));
  EXPECT_EQ(AddressOf(Allocate({freed_large}, 5000)), AddressOf(large));
}

TEST_F(Model, FreeingMayBeUndone) {
  Node* allocated = Allocate({}, 64);
  Node* freed = Free({allocated}, AddressOf(allocated));
  Free({freed}, AddressOf(allocated), CUDA_ERROR_INVALID_VALUE);
  DestroyNode(freed);
  Node* again = Free({allocated}, AddressOf(allocated));
  Free({again}, AddressOf(allocated), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Model, WhatAChildGraphFreesItsParentDoesNot) {
  Graph* const parent = graph_;
  Graph* const middle = MakeGraph();
  Graph* const inner = MakeGraph();
  graph_ = inner;
  Node* freed_there = Allocate({}, 64);
  Free({freed_there}, AddressOf(freed_there));
  Node* left = Allocate({}, 64);
  EXPECT_FALSE(HasAllocations(middle));
  graph_ = middle;
  Move(inner);
  graph_ = parent;
  Node* child = Move(middle);
  for (const Graph* graph : {inner, middle, parent}) EXPECT_TRUE(HasAllocations(graph));
  Free({child}, AddressOf(freed_there), CUDA_ERROR_INVALID_VALUE);
  Node* freed = Free({child}, AddressOf(left));
  Free({freed}, AddressOf(left), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Model, AParentOfReusedMemoryKeepsItsOrder) {
  Graph* const parent = graph_;
  graph_ = MakeGraph();
  Node* first = Allocate({}, 64);
  Node* freed = Free({first}, AddressOf(first));
  EXPECT_EQ(AddressOf(Allocate({freed}, 64)), AddressOf(first));
  Graph* const child = graph_;
  graph_ = parent;
  EXPECT_FALSE(graph_->reuses_memory);
  Move(child);
  EXPECT_TRUE(graph_->reuses_memory);
}

TEST_F(Model, AfterAResetNothingIsReused) {
  Node* allocated = Allocate({}, 4096);
  Node* freed = Free({allocated}, AddressOf(allocated));
  const CUdeviceptr address = AddressOf(allocated);
  ForgetGraphMemory();
  Node* next = Allocate({freed}, 4096);
  EXPECT_NE(AddressOf(next), address);
  EXPECT_NE(AddressOf(next), 0u);
  EXPECT_EQ(MemoryUse().bytes, 4096u);
}

TEST_F(Model, ManyPairsOfAllocationsAndFreesTakeOneLookEach) {
  constexpr size_t kPairs = 20000;
  Node* last = Add(graph_, {}, 0);
  Node* first = nullptr;
  for (size_t i = 0; i < kPairs; ++i) {
    Node* allocated = Allocate({last}, 4096);
    if (first == nullptr) first = allocated;
    ASSERT_EQ(AddressOf(allocated), AddressOf(first));
    last = Free({allocated}, AddressOf(first));
  }
  Free({last}, AddressOf(first), CUDA_ERROR_INVALID_VALUE);
  EXPECT_LE(graph_->looked_at, 2 * kPairs);
  EXPECT_EQ(graph_->uses.count(), 1u);
}

TEST_F(Model, TheSearchForMemoryEndsBeforeItTakesLong) {
  Node* root = Add(graph_, {}, 0);
  // Its memory fits, but is freed beside the chain.
  Node* beside = Allocate({root}, 4096);
  Free({beside}, AddressOf(beside));
  Node* last = Allocate({root}, 4096);
  const CUdeviceptr address = AddressOf(last);
  last = Free({last}, address);
  const auto lengthen = [&](size_t nodes) {
    for (size_t i = 0; i < nodes; ++i) last = Add(graph_, {last}, 1);
  };
  lengthen(1000);
  EXPECT_EQ(AddressOf(Allocate({last}, 4096)), address);  // far back, and found
  lengthen(1000);
  const size_t before = library.last_address;
  for (size_t i = 0; i < 2000; ++i) last = Allocate({last}, 4096);
  EXPECT_EQ(library.last_address, before + 2000);
  EXPECT_LE(graph_->looked_at, kMaxScannedPerNode * graph_->nodes.count());
}

TEST_F(Model, AnotherGraphsFreedMemoryIsNotReused) {
  Node* allocated = Allocate({}, 4096);
  const CUdeviceptr address = AddressOf(allocated);
  Graph* owner = graph_;
  graph_ = MakeGraph();
  Node* freed_here = Free({}, address);
  EXPECT_NE(AddressOf(Allocate({freed_here}, 4096)), address);
  DestroyGraph(graph_);
  graph_ = owner;
}

TEST_F(Model, AfterALaunchReusedMemoryIsTheLastUsers) {
  Node* first = Allocate({}, 64);
  Node* freed_first = Free({first}, AddressOf(first));
  Node* second = Allocate({freed_first}, 64);
  ASSERT_EQ(AddressOf(second), AddressOf(first));
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  ASSERT_EQ(CheckLaunch(*exec), CUDA_SUCCESS);
  ApplyLaunch(*exec);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_ERROR_INVALID_VALUE);
  CUresult result;
  EXPECT_TRUE(FreesGraphMemory(AddressOf(first), &result));
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_EQ(CheckLaunch(*exec), CUDA_SUCCESS);
  ForgetExec(exec);
  FreeExec(exec);
}

TEST_F(Model, ACapturesAllocationsReuseWhatTheirStreamHasFreed) {
  const auto allocate = [](const StreamRef& stream) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    CUdeviceptr address = 0;
    EXPECT_TRUE(Records(stream, &result, [&](NodeParams* node) {
      const CUresult made = MakeStreamAllocation(stream, 4096, node);
      address = node->alloc.params.dptr;
      return made;
    }));
    EXPECT_EQ(result, CUDA_SUCCESS);
    return address;
  };
  const auto give = [](const StreamRef& stream, CUdeviceptr address) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    EXPECT_TRUE(
        Records(stream, &result, [&](NodeParams* node) { return MakeFree(address, node); }));
    EXPECT_EQ(result, CUDA_SUCCESS);
  };
  Begin(kFirst);
  CUresult result;
  EXPECT_TRUE(CapturesRecord(kFirst, EventOf(16), 0, &result));
  EXPECT_TRUE(CapturesWait(kSecond, EventOf(16), 0, &result));
  const CUdeviceptr address = allocate(kFirst);
  give(kFirst, address);
  EXPECT_NE(allocate(kSecond), address);
  EXPECT_EQ(allocate(kFirst), address);
  give(kFirst, address);
  EXPECT_TRUE(CapturesRecord(kFirst, EventOf(32), 0, &result));
  EXPECT_TRUE(CapturesWait(kSecond, EventOf(32), 0, &result));
  EXPECT_EQ(allocate(kSecond), address);
  EXPECT_NE(allocate(kFirst), address);
}

}  // namespace
}  // namespace gpuloom::graph
