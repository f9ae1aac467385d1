// SPDX-License-Identifier: Apache-2.0
// The model by itself: graphs, executable graphs, captures.
#include "proto/libcuda/graph/graph.h"

#include <gtest/gtest.h>

#include <vector>

#include "proto/libcuda/graph/capture.h"
#include "proto/libcuda/graph/conditional.h"
#include "proto/libcuda/graph/exec.h"
#include "proto/libcuda/graph/handle_set.h"
#include "proto/libcuda/graph/testing/model.h"
#include "proto/libcuda/graph/user_object.h"

namespace gpuloom::graph {
namespace {

TEST_F(Model, OrdersNodesByTheirEdges) {
  Node* last = Add(graph_, {}, 3);
  Node* first = Add(graph_, {}, 1);
  Node* middle = Add(graph_, {first}, 2);
  ASSERT_EQ(AddEdge(middle, last, {}), CUDA_SUCCESS);
  Growing<Node*> order;
  Node* culprit = nullptr;
  EXPECT_EQ(TopologicalOrder(graph_, &order, &culprit), CUDA_SUCCESS);
  EXPECT_EQ(Values(order), (std::vector<uint32_t>{1, 2, 3}));
  order.Clear();
  ASSERT_EQ(AddEdge(last, first, {}), CUDA_SUCCESS);
  EXPECT_EQ(TopologicalOrder(graph_, &order, &culprit), CUDA_ERROR_INVALID_VALUE);
  EXPECT_NE(culprit, nullptr);
  order.Free();
}

TEST_F(Model, ANodeTakesItsEdgesAlong) {
  Node* a = Add(graph_, {}, 1);
  Node* b = Add(graph_, {a}, 2);
  Node* c = Add(graph_, {a, b}, 3);
  EXPECT_EQ(AddEdge(a, b, {}), CUDA_ERROR_INVALID_VALUE);
  const CUgraphNode handle = HandleOf(b);
  DestroyNode(b);
  EXPECT_EQ(FindNode(handle), nullptr);
  EXPECT_EQ(a->out.count(), 1u);
  EXPECT_EQ(c->in.count(), 1u);
}

TEST_F(Model, AClonesNodesAreFoundByTheirOriginals) {
  Node* a = Add(graph_, {}, 1);
  Node* b = Add(graph_, {a}, 2);
  Graph* clone = CloneGraph(graph_);
  ASSERT_NE(clone, nullptr);
  Node* copy = FindInClone(clone, b);
  ASSERT_NE(copy, nullptr);
  EXPECT_EQ(copy->params.memset.value, 2u);
  EXPECT_EQ(copy->in[0].node, FindInClone(clone, a));
  EXPECT_EQ(FindInClone(graph_, b), nullptr);
  DestroyGraph(clone);
}

TEST_F(Model, AChangedClonesNodesAreFoundByTheirOriginals) {
  Node* a = Add(graph_, {}, 1);
  Node* b = Add(graph_, {}, 2);
  Node* c = Add(graph_, {}, 3);
  Graph* clone = CloneGraph(graph_);
  ASSERT_NE(clone, nullptr);
  Add(clone, {}, 4);
  DestroyNode(FindInClone(clone, b));
  EXPECT_EQ(FindInClone(clone, a), clone->nodes[0]);
  EXPECT_EQ(FindInClone(clone, b), nullptr);
  EXPECT_EQ(FindInClone(clone, c), clone->nodes[1]);
  EXPECT_EQ(FindInClone(clone, Add(graph_, {}, 5)), nullptr);
  DestroyGraph(clone);
}

TEST_F(Model, AnEdgeIsKnownFromEitherEnd) {
  Node* first = Add(graph_, {}, 0);
  Node* last = Add(graph_, {}, 0);
  for (uint32_t i = 1; i < 5; ++i) {
    EXPECT_EQ(AddEdge(Add(graph_, {first}, i), last, {}), CUDA_SUCCESS);
  }
  Node* between = graph_->nodes[3];
  EXPECT_TRUE(HasEdge(first, between));
  EXPECT_TRUE(HasEdge(between, last));
  EXPECT_FALSE(HasEdge(between, first));
  EXPECT_FALSE(HasEdge(last, between));
  EXPECT_FALSE(HasEdge(first, last));
  EXPECT_EQ(AddEdge(first, between, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(AddEdge(between, last, {}), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Model, AStepIsFoundWhereverItsNodeIsNow) {
  Graph* child = MakeGraph();
  Graph* grandchild = MakeGraph();
  Graph* const parent = graph_;
  Node* leaf = Add(grandchild, {}, 1);
  graph_ = child;
  Node* gone = Add(child, {}, 2);
  Move(grandchild);
  graph_ = parent;
  Node* node = Move(child);
  Node* last = Add(graph_, {node}, 3);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  DestroyNode(gone);
  Node* late = Add(child, {}, 4);
  const auto expect_all = [&] {
    EXPECT_EQ(FindStep(exec, leaf)->node->params.memset.value, 1u);
    EXPECT_EQ(FindStep(exec, node)->node->params.type, CU_GRAPH_NODE_TYPE_GRAPH);
    EXPECT_EQ(FindStep(exec, last)->node->params.memset.value, 3u);
    EXPECT_EQ(FindStep(exec, late), nullptr);
  };
  expect_all();
  // The graph itself becomes another one's.
  graph_ = MakeGraph();
  Node* other = Add(graph_, {}, 5);
  Move(parent);
  expect_all();
  EXPECT_EQ(FindStep(exec, other), nullptr);
  ForgetExec(exec);
  FreeExec(exec);
}

TEST_F(Model, AChildsStepsStandInItsPlace) {
  Graph* child = MakeGraph();
  Node* inner = Add(child, {}, 2);
  (void)Add(child, {inner}, 3);
  Node* first = Add(graph_, {}, 1);
  NodeParams params = {};
  params.type = CU_GRAPH_NODE_TYPE_GRAPH;
  params.child = {child, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE};
  const Edge edge = {first, {}};
  Node* node = nullptr;
  ASSERT_EQ(AddNode(graph_, &params, &edge, 1, &node), CUDA_SUCCESS);
  (void)Add(graph_, {node}, 4);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  const Growing<Step>& steps = exec->definition.steps;
  ASSERT_EQ(steps.count(), 5u);
  const uint32_t values[] = {1, 2, 3, 0, 4};
  for (uint32_t i = 0; i < 5; ++i) {
    if (i == 3) {
      EXPECT_EQ(steps[i].node->params.type, CU_GRAPH_NODE_TYPE_GRAPH);
    } else {
      EXPECT_EQ(steps[i].node->params.memset.value, values[i]);
    }
    ASSERT_EQ(steps[i].dependency_count, i == 0 ? 0u : 1u);
    if (i > 0) {
      EXPECT_EQ(exec->definition.dependencies[steps[i].first_dependency].step, i - 1);
    }
  }
  // The program's handle names the step.
  EXPECT_EQ(FindStep(exec, inner)->node->params.memset.value, 2u);
  EXPECT_EQ(FindStep(exec, first), &steps[0]);
  const uint32_t before = library.destroyed_execs;
  ForgetExec(exec);
  FreeExec(exec);
  EXPECT_EQ(library.destroyed_execs, before + 1);
}

TEST_F(Model, AnUpdateSendsOnlyWhatDiffers) {
  Node* a = Add(graph_, {}, 1);
  (void)Add(graph_, {a}, 2);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  library.updates = 0;
  CUgraphExecUpdateResultInfo info;
  EXPECT_EQ(UpdateExec(exec, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(library.updates, 0u);
  a->params.memset.value = 7;
  EXPECT_EQ(UpdateExec(exec, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(library.updates, 1u);
  EXPECT_EQ(FindStep(exec, a)->node->params.memset.value, 7u);
  (void)Add(graph_, {}, 3);
  EXPECT_EQ(UpdateExec(exec, graph_, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  ForgetExec(exec);
  FreeExec(exec);
}

TEST_F(Model, AnUpdatesEdgesMayHaveAnotherOrder) {
  Node* a = Add(graph_, {}, 1);
  Node* b = Add(graph_, {}, 2);
  Add(graph_, {a, b}, 3);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  Graph* other = MakeGraph();
  Node* c = Add(other, {}, 1);
  Node* d = Add(other, {}, 2);
  Node* e = Add(other, {d, c}, 3);
  CUgraphExecUpdateResultInfo info;
  EXPECT_EQ(UpdateExec(exec, other, &info), CUDA_SUCCESS);
  ASSERT_EQ(RemoveEdge(c, e, {}), CUDA_SUCCESS);
  ASSERT_EQ(AddEdge(d, c, {}), CUDA_SUCCESS);
  EXPECT_EQ(UpdateExec(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.errorNode, HandleOf(c));
  DestroyGraph(other);
  ForgetExec(exec);
  FreeExec(exec);
}

TEST_F(Model, UserObjectsGoWithTheLastGraph) {
  int destroyed = 0;
  UserObject* object = MakeUserObject(
      &destroyed, [](void* data) { ++*static_cast<int*>(data); }, 1);
  ASSERT_TRUE(HoldObject(graph_, object, 1));
  Graph* clone = CloneGraph(graph_);
  DropObject(graph_, object, 1);
  RunDestructors();
  EXPECT_EQ(destroyed, 0);
  DestroyGraph(clone);
  RunDestructors();
  EXPECT_EQ(destroyed, 1);
}

TEST_F(Model, ACaptureForksAndJoins) {
  Begin(kFirst);
  EXPECT_EQ(Fill(kFirst, 1), CUDA_SUCCESS);
  CUresult result;
  EXPECT_TRUE(CapturesRecord(kFirst, EventOf(16), 0, &result));
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_TRUE(CapturesWait(kSecond, EventOf(16), 0, &result));
  EXPECT_EQ(Fill(kSecond, 2), CUDA_SUCCESS);
  EXPECT_EQ(Fill(kFirst, 3), CUDA_SUCCESS);
  EXPECT_TRUE(CapturesRecord(kSecond, EventOf(32), 0, &result));
  EXPECT_TRUE(CapturesWait(kFirst, EventOf(32), 0, &result));
  EXPECT_EQ(Fill(kFirst, 4), CUDA_SUCCESS);
  Graph* graph = nullptr;
  ASSERT_EQ(End(kFirst, &graph), CUDA_SUCCESS);
  ASSERT_EQ(graph->nodes.count(), 4u);
  EXPECT_EQ(graph->nodes[3]->in.count(), 2u);
  EXPECT_EQ(graph->nodes[1]->in[0].node, graph->nodes[0]);
  DestroyGraph(graph);
  // The events stay captured until they are recorded again, or gone.
  EXPECT_EQ(CheckEventUse(EventOf(16)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_FALSE(CapturesRecord(kFirst, EventOf(16), 0, &result));
  EXPECT_EQ(CheckEventUse(EventOf(16)), CUDA_SUCCESS);
  ForgetEvent(EventOf(32));
}

TEST_F(Model, WorkThatNobodyJoinsIsUnjoined) {
  Begin(kFirst);
  EXPECT_EQ(Fill(kFirst, 1), CUDA_SUCCESS);
  CUresult result;
  EXPECT_TRUE(CapturesRecord(kFirst, EventOf(16), 0, &result));
  EXPECT_TRUE(CapturesWait(kSecond, EventOf(16), 0, &result));
  EXPECT_EQ(Fill(kSecond, 2), CUDA_SUCCESS);
  ForgetStream(kSecond);  // destroyed: its work is still there
  Graph* graph = nullptr;
  EXPECT_EQ(End(kFirst, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  ForgetEvent(EventOf(16));
}

TEST_F(Model, CapturesDoNotMerge) {
  Begin(kFirst);
  Begin(kSecond);
  CUresult result;
  EXPECT_TRUE(CapturesRecord(kSecond, EventOf(16), 0, &result));
  EXPECT_TRUE(CapturesWait(kFirst, EventOf(16), 0, &result));
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_MERGE);
  EXPECT_EQ(Fill(kFirst, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  Graph* graph;
  EXPECT_EQ(End(kFirst, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(End(kSecond, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ForgetEvent(EventOf(16));
}

TEST_F(Model, OnlyEventsOfTheCaptureMayBeWaitedFor) {
  library.recorded.insert(EventOf(16));
  Begin(kFirst);
  CUresult result;
  EXPECT_TRUE(CapturesWait(kFirst, EventOf(32), 0, &result));
  EXPECT_EQ(result, CUDA_SUCCESS);
  EXPECT_TRUE(CapturesWait(kFirst, EventOf(16), 0, &result));
  EXPECT_EQ(result, CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  Graph* graph;
  EXPECT_EQ(End(kFirst, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

TEST_F(Model, ManyEventsAreTold) {
  Begin(kFirst);
  CUresult result;
  const std::vector<uintptr_t> numbers = {64, 16, 48, 32, 80};
  for (const uintptr_t number : numbers) {
    EXPECT_TRUE(CapturesRecord(kFirst, EventOf(number), 0, &result));
    EXPECT_EQ(result, CUDA_SUCCESS);
  }
  ForgetEvent(EventOf(48));
  ForgetEvent(EventOf(96));
  for (const uintptr_t number : numbers) {
    EXPECT_EQ(CheckEventTime(EventOf(number)),
              number == 48 ? CUDA_SUCCESS : CUDA_ERROR_CAPTURED_EVENT);
  }
  EXPECT_EQ(CheckEventTime(EventOf(96)), CUDA_SUCCESS);
}

TEST_F(Model, TheLegacyStreamKeepsAwayFromBlockingOnes) {
  Begin(kFirst);
  EXPECT_FALSE(Participates(kLegacy));
  Begin(kBlocking);
  EXPECT_EQ(Fill(kLegacy, 1), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  Graph* graph = nullptr;
  EXPECT_EQ(End(kBlocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(End(kFirst, &graph), CUDA_SUCCESS);
  DestroyGraph(graph);
}

TEST_F(Model, AGraphMayBeDestroyedUnderItsCapture) {
  Graph* graph = MakeGraph();
  {
    GraphLock lock;
    ASSERT_EQ(BeginCaptureLocked(kFirst, graph, nullptr, 0, kThreadLocal), CUDA_SUCCESS);
    DestroyGraph(graph);
  }
  EXPECT_EQ(Fill(kFirst, 1), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(End(kFirst, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

// A conditional node of `bodies` bodies.
Node* AddConditional(Graph* graph, CUgraphConditionalHandle handle, unsigned bodies,
                     CUresult expected = CUDA_SUCCESS) {
  CUgraphNodeParams asked = {};
  asked.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  asked.conditional.handle = handle;
  asked.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
  asked.conditional.size = bodies;
  NodeParams params;
  const CUresult result = ReadConditional(asked, graph, &params);
  EXPECT_EQ(result, expected);
  Node* node = nullptr;
  if (result == CUDA_SUCCESS) {
    EXPECT_EQ(AddNode(graph, &params, nullptr, 0, &node), CUDA_SUCCESS);
  }
  return node;
}
CUgraphConditionalHandle Handle(Graph* graph) {
  CUgraphConditionalHandle handle = 0;
  EXPECT_EQ(MakeCondition(RootOf(graph), nullptr, 0, 0, &handle), CUDA_SUCCESS);
  return handle;
}

TEST_F(Model, ADefinitionsBodiesStandBehindIt) {
  GraphLock lock;
  Node* outer = AddConditional(graph_, Handle(graph_), 2);
  Node* other = AddConditional(graph_, Handle(graph_), 1);
  Graph* first = outer->params.conditional.bodies[0];
  EXPECT_EQ(RootOf(first), graph_);
  Node* inner = AddConditional(first, Handle(first), 1);
  Add(inner->params.conditional.bodies[0], {}, 1);
  Add(outer->params.conditional.bodies[1], {Add(outer->params.conditional.bodies[1], {}, 2)}, 3);
  Add(other->params.conditional.bodies[0], {}, 4);
  Add(graph_, {outer}, 5);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  const Definition& definition = exec->definition;
  ASSERT_EQ(definition.steps.count(), 8u);
  ASSERT_EQ(definition.bodies.count(), 4u);
  EXPECT_EQ(definition.bodies[0].first, 3u);
  EXPECT_EQ(definition.bodies[0].count, 1u);
  EXPECT_EQ(definition.bodies[1].count, 2u);
  EXPECT_EQ(definition.bodies[2].count, 1u);
  EXPECT_EQ(definition.bodies[3].owner, 3u) << "the one in the first body";
  EXPECT_EQ(definition.steps[7].node->params.memset.value, 1u);
  EXPECT_NE(FindStep(exec, inner), nullptr);
  // One at a time, and it does not need its graph.
  Exec* second = nullptr;
  EXPECT_EQ(MakeExec(graph_, 0, &second, &culprit, &why), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(library.reservations, 1);
  DestroyGraph(graph_);
  EXPECT_EQ(library.reservations, 0);
  graph_ = MakeGraph();
  ForgetExec(exec);
  FreeExec(exec);
  EXPECT_EQ(library.reservations, 0);
}

TEST_F(Model, AHandleHasOneNode) {
  GraphLock lock;
  const CUgraphConditionalHandle handle = Handle(graph_);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  EXPECT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(why, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
  AddConditional(graph_, handle + 1, 1, CUDA_ERROR_INVALID_VALUE);
  Node* node = AddConditional(graph_, handle, 1);
  AddConditional(graph_, handle, 1, CUDA_ERROR_INVALID_VALUE);
  AddConditional(node->params.conditional.bodies[0], handle, 1, CUDA_ERROR_INVALID_VALUE);
  EXPECT_TRUE(HasConditions(graph_));
  DestroyNode(node);
  AddConditional(graph_, handle, 1);
  ForgetReservations();
  EXPECT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_ERROR_CONTEXT_IS_DESTROYED);
  CUgraphConditionalHandle more = 0;
  EXPECT_EQ(MakeCondition(graph_, nullptr, 0, 0, &more), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

TEST_F(Model, BodiesHoldWhatTheyMay) {
  GraphLock lock;
  Graph* body = AddConditional(graph_, Handle(graph_), 1)->params.conditional.bodies[0];
  NodeParams event = {};
  event.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  Node* node = nullptr;
  NodeParams host = HostCall(nullptr, nullptr);
  // Others may be there, but the graph does not run.
  for (NodeParams* params : {&event, &host}) {
    ASSERT_EQ(AddNode(body, params, nullptr, 0, &node), CUDA_SUCCESS);
    Exec* exec = nullptr;
    Node* culprit = nullptr;
    CUgraphInstantiateResult why;
    EXPECT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(culprit, node);
    DestroyNode(node);
  }
  for (uint32_t depth = 1; depth < kMaxConditionDepth; ++depth) {
    body = AddConditional(body, Handle(body), 1)->params.conditional.bodies[0];
  }
  AddConditional(body, Handle(body), 1, CUDA_ERROR_NOT_SUPPORTED);
  AddConditional(graph_, Handle(graph_), kMaxBodies + 1, CUDA_ERROR_NOT_SUPPORTED);
}

TEST_F(Model, ADriverWithoutRoomGivesNoHandle) {
  GraphLock lock;
  library.most_handles = library.last_handle;
  CUgraphConditionalHandle handle = 0;
  EXPECT_EQ(MakeCondition(graph_, nullptr, 0, 0, &handle), CUDA_ERROR_OUT_OF_MEMORY);
  library.most_handles = UINT64_MAX;
  EXPECT_FALSE(HasConditions(graph_));
}

TEST_F(Model, UpdatesReachIntoBodies) {
  GraphLock lock;
  Graph* body = AddConditional(graph_, Handle(graph_), 1)->params.conditional.bodies[0];
  Node* fill = Add(body, {}, 1);
  Exec* exec = nullptr;
  Node* culprit = nullptr;
  CUgraphInstantiateResult why;
  ASSERT_EQ(MakeExec(graph_, 0, &exec, &culprit, &why), CUDA_SUCCESS);
  library.updates = 0;
  fill->params.memset.value = 2;
  CUgraphExecUpdateResultInfo info;
  EXPECT_EQ(UpdateExec(exec, graph_, &info), CUDA_SUCCESS);
  EXPECT_EQ(library.updates, 1u);
  // The kernels of another graph set another handle.
  Graph* other = MakeGraph();
  Node* node = AddConditional(other, Handle(other), 1);
  Add(node->params.conditional.bodies[0], {}, 2);
  EXPECT_EQ(UpdateExec(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(info.errorNode, HandleOf(node));
  DestroyGraph(other);
  ForgetExec(exec);
  FreeExec(exec);
}

TEST(HandleSet, FindsWhatIsInIt) {
  static HandleSet set;  // is never destroyed
  std::set<uintptr_t> in;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005 + 1442695040888963407;
    const uintptr_t value = 16 * (1 + (state >> 33) % 500);
    const void* handle = reinterpret_cast<const void*>(value);
    ASSERT_EQ(set.Contains(handle), in.count(value) != 0);
    if (in.count(value) != 0) {
      set.Remove(handle);
      in.erase(value);
    } else {
      ASSERT_TRUE(set.Add(handle));
      in.insert(value);
    }
  }
  EXPECT_FALSE(set.Contains(nullptr));
}

}  // namespace
}  // namespace gpuloom::graph
