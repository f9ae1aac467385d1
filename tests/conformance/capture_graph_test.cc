// SPDX-License-Identifier: Apache-2.0
// Captures into a graph that is there already, the program's own: how they end, and what becomes of it.
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

class CaptureToGraph : public WithKernels {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    word_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(word_, 0, 16), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    increment_ = Function("increment");
    stream_ = Stream();
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (graph_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    }
    WithKernels::TearDown();
  }

  CUresult TryBegin(CUstream stream, CUstreamCaptureMode mode = kGlobal) {
    return Cu().cuStreamBeginCaptureToGraph(stream, graph_, nullptr, nullptr, 0, mode);
  }
  void Begin(CUstreamCaptureMode mode = kGlobal) {
    ASSERT_EQ(TryBegin(stream_, mode), CUDA_SUCCESS);
    EXPECT_EQ(Increment(stream_), CUDA_SUCCESS);
  }
  CUresult Increment(CUstream stream) { return Launch(increment_, 1, 1, stream, word_); }
  size_t CountNodes() {
    size_t count = 99;
    EXPECT_EQ(Cu().cuGraphGetNodes(graph_, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  // The word behind one run.
  uint32_t Run() {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    return Download<uint32_t>(word_, 1)[0];
  }
  void ExpectIdle(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    EXPECT_EQ(Cu().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  }
  // A capture that breaks takes the graph along.
  void ExpectGone() {
    ExpectIdle(stream_);
    size_t count = 0;
    EXPECT_EQ(Cu().cuGraphGetNodes(graph_, nullptr, &count), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(TryBegin(stream_), CUDA_ERROR_INVALID_VALUE);
    EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_ERROR_INVALID_VALUE);
    graph_ = nullptr;
  }

  CUdeviceptr word_ = 0;
  CUfunction increment_ = nullptr;
  CUstream stream_ = nullptr;
  CUgraph graph_ = nullptr;
};

TEST_F(CaptureToGraph, EndsWithoutAskingForTheGraph) {
  for (uint32_t round = 1; round <= 3; ++round) {
    Begin();
    EXPECT_EQ(Increment(stream_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
    ExpectIdle(stream_);
    EXPECT_EQ(CountNodes(), 2u * round);
  }
  EXPECT_EQ(Run(), 6u);
}

TEST_F(CaptureToGraph, OfAnotherKindEndsSo) {
  CUstreamCaptureStatus status;
  CUgraph captured = nullptr;
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, kGlobal), CUDA_SUCCESS);
  EXPECT_EQ(Increment(stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, &captured, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  ExpectIdle(stream_);
  CUgraph none = graph_;
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, &none), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(none, nullptr);
  // The graph is there for whoever asked before.
  EXPECT_EQ(Cu().cuGraphDestroy(captured), CUDA_SUCCESS);
}

TEST_F(CaptureToGraph, Broken) {
  Begin();
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(CountNodes(), 1u);
  CUgraph captured = graph_;
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, &captured), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(captured, nullptr);
  ExpectGone();
}

TEST_F(CaptureToGraph, BrokenAndNotAskedFor) {
  Begin();
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ExpectGone();
}

TEST_F(CaptureToGraph, EndedOnAnotherThread) {
  Begin();
  std::thread([&] {
    EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  }).join();
  ExpectGone();
}

TEST_F(CaptureToGraph, EndedBeforeABranchHasJoined) {
  CUstream branch = Stream();
  CUevent forked = Event(CU_EVENT_DISABLE_TIMING);
  Begin();
  ASSERT_EQ(Cu().cuEventRecord(forked, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(branch, forked, 0), CUDA_SUCCESS);
  EXPECT_EQ(Increment(branch), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  ExpectIdle(branch);
  ExpectGone();
}

TEST_F(CaptureToGraph, EndedInABranch) {
  CUstream branch = Stream();
  CUevent forked = Event(CU_EVENT_DISABLE_TIMING);
  Begin();
  ASSERT_EQ(Cu().cuEventRecord(forked, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(branch, forked, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamEndCapture(branch, nullptr), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ExpectGone();
}

TEST_F(CaptureToGraph, EndedWithItsStream) {
  CUstream stream = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(TryBegin(stream), CUDA_SUCCESS);
  EXPECT_EQ(Increment(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  ExpectGone();
}

TEST_F(CaptureToGraph, AGraphIsCapturedIntoByOne) {
  CUstream other = Stream();
  Begin(kRelaxed);
  EXPECT_EQ(TryBegin(other, kRelaxed), CUDA_ERROR_ILLEGAL_STATE);
  ExpectIdle(other);
  EXPECT_EQ(Cu().cuStreamEndCapture(other, nullptr), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(TryBegin(stream_, kRelaxed), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CountNodes(), 1u);
}

TEST_F(CaptureToGraph, MeanwhileTheGraphIsUsedButNotCutDown) {
  CUgraphNode before = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEmptyNode(&before, graph_, nullptr, 0), CUDA_SUCCESS);
  Begin(kRelaxed);
  EXPECT_EQ(CountNodes(), 2u);
  EXPECT_EQ(Cu().cuGraphDestroyNode(before), CUDA_ERROR_ILLEGAL_STATE);
  EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_ERROR_ILLEGAL_STATE);
  CUgraphNode added = nullptr;
  EXPECT_EQ(Cu().cuGraphAddEmptyNode(&added, graph_, &before, 1), CUDA_SUCCESS);
  CUgraph clone = nullptr;
  ASSERT_EQ(Cu().cuGraphClone(&clone, graph_), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Increment(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(CountNodes(), 4u);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Run(), 3u);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(clone), CUDA_SUCCESS);
}

TEST_F(CaptureToGraph, BeginsBehindNodes) {
  CUgraph other = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&other, 0), CUDA_SUCCESS);
  CUgraphNode before = nullptr, elsewhere = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEmptyNode(&before, graph_, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphAddEmptyNode(&elsewhere, other, nullptr, 0), CUDA_SUCCESS);
  const auto begin = [&](const CUgraphNode* nodes, const CUgraphEdgeData* data, size_t count) {
    return Cu().cuStreamBeginCaptureToGraph(stream_, graph_, nodes, data, count, kGlobal);
  };
  CUgraphEdgeData data = {};
  data.from_port = 9;
  EXPECT_EQ(begin(nullptr, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(begin(&elsewhere, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(begin(&before, &data, 1), CUDA_ERROR_INVALID_VALUE);
  ExpectIdle(stream_);
  const CUgraphNode twice[] = {before, before};
  ASSERT_EQ(begin(twice, nullptr, 2), CUDA_SUCCESS);
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  size_t count = 0;
  EXPECT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream_, &status, nullptr, nullptr, &nodes, &count),
            CUDA_SUCCESS);
  ASSERT_GE(count, 1u);
  EXPECT_EQ(nodes[0], before);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  data.from_port = 0;
  ASSERT_EQ(begin(&before, &data, 1), CUDA_SUCCESS);
  EXPECT_EQ(Increment(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphNodeGetDependentNodes_v2(before, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(Run(), 1u);
  EXPECT_EQ(Cu().cuGraphDestroy(other), CUDA_SUCCESS);
}

TEST_F(CaptureToGraph, WithoutOneThereIsOnlyTheStatusToTell) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 55;
  CUgraph graph = graph_;
  size_t count = 77;
  const auto ask = [&] {
    return Cu().cuStreamGetCaptureInfo_v2(stream_, &status, &id, &graph, nullptr, &count);
  };
  EXPECT_EQ(ask(), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, kGlobal), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(ask(), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EXPECT_EQ(id, 55u);
  EXPECT_EQ(graph, graph_);
  EXPECT_EQ(count, 77u);
  EXPECT_EQ(Cu().cuStreamEndCapture(stream_, nullptr), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

}  // namespace
}  // namespace gpuloom::conformance
