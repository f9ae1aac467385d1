// SPDX-License-Identifier: Apache-2.0
// Stream capture: what is recorded, how captures branch and join, what they forbid.
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr auto kGlobal = CU_STREAM_CAPTURE_MODE_GLOBAL;
constexpr auto kThreadLocal = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
constexpr auto kRelaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

using Order = std::vector<uint32_t>;

class Capture : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    journal_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(journal_, 0, 16), CUDA_SUCCESS);
    append_ = Function("append");
    increment_ = Function("increment");
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void TearDown() override {
    for (CUgraphExec exec : execs_) EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    for (CUgraph graph : graphs_) EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
    WithKernels::TearDown();
  }

  void Begin(CUstream stream, CUstreamCaptureMode mode = kThreadLocal) {
    ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, mode), CUDA_SUCCESS);
  }
  CUgraph End(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
    EXPECT_NE(graph, nullptr);
    if (graph != nullptr) graphs_.push_back(graph);
    return graph;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    if (exec != nullptr) execs_.push_back(exec);
    return exec;
  }
  // How the stream's capture ends when it was broken.
  void EndBroken(CUstream stream) {
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    EXPECT_EQ(graph, nullptr);
  }
  void Append(CUstream stream, uint32_t id) {
    ASSERT_EQ(Launch(append_, 1, 1, stream, journal_, id), CUDA_SUCCESS);
  }
  Order Journal() {
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    std::vector<uint32_t> words = Download<uint32_t>(journal_, 16);
    const uint32_t count = words[0] < 15 ? words[0] : 15;
    return {words.begin() + 1, words.begin() + 1 + count};
  }
  static size_t CountNodes(CUgraph graph) {
    size_t count = 99;
    EXPECT_EQ(Cu().cuGraphGetNodes(graph, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  static size_t CountEdges(CUgraph graph) {
    size_t count = 99;
    EXPECT_EQ(Cu().cuGraphGetEdges(graph, nullptr, nullptr, &count), CUDA_SUCCESS);
    return count;
  }
  static CUstreamCaptureStatus StatusOf(CUstream stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    EXPECT_EQ(Cu().cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
    return status;
  }

  CUdeviceptr journal_ = 0;
  CUfunction append_ = nullptr;
  CUfunction increment_ = nullptr;
  std::vector<CUgraph> graphs_;
  std::vector<CUgraphExec> execs_;
};

TEST_F(Capture, RecordsInsteadOfRunning) {
  CUstream stream = Stream();
  Begin(stream);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  for (uint32_t id = 1; id <= 3; ++id) Append(stream, id);
  CUgraph graph = End(stream);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(CountNodes(graph), 3u);
  EXPECT_EQ(CountEdges(graph), 2u);
  EXPECT_EQ(Journal(), Order());
  CUgraphExec exec = Instantiate(graph);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  Append(stream, 4);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 2, 3, 4, 1, 2, 3}));
}

TEST_F(Capture, CopiesAndFillsAreRecorded) {
  CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(4096);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(4096));
  Begin(stream);
  ASSERT_EQ(Cu().cuMemsetD32Async(memory, 7, 512, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8Async(memory, 1, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(memory + 2048, memory, 2048, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pinned, memory, 4096, stream), CUDA_SUCCESS);
  CUgraph graph = End(stream);
  EXPECT_EQ(CountNodes(graph), 4u);
  EXPECT_EQ(pinned[0], 0u);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(pinned[0], 0x01010101u);
  EXPECT_EQ(pinned[1], 7u);
  EXPECT_EQ(pinned[512], 0x01010101u);
  EXPECT_EQ(pinned[1023], 7u);
}

TEST_F(Capture, TellsAboutItself) {
  if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
  CUstream stream = Stream();
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
  cuuint64_t id = 0;
  CUgraph graph = nullptr;
  const CUgraphNode* nodes = nullptr;
  size_t count = 99;
  EXPECT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_NONE);
  Begin(stream);
  EXPECT_EQ(Cu().cuStreamGetCaptureInfo_v2(stream, &status, &id, &graph, &nodes, &count),
            CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(count, 0u);
  Append(stream, 1);
  cuuint64_t same_id = 0;
  CUgraph same_graph = nullptr;
  const CUgraphEdgeData* data = nullptr;
  EXPECT_EQ(
      Cu().cuStreamGetCaptureInfo_v3(stream, &status, &same_id, &same_graph, &nodes, &data, &count),
      CUDA_SUCCESS);
  EXPECT_EQ(same_id, id);
  EXPECT_EQ(same_graph, graph);
  ASSERT_EQ(count, 1u);
  CUgraphNodeType type;
  EXPECT_EQ(Cu().cuGraphNodeGetType(nodes[0], &type), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_GRAPH_NODE_TYPE_KERNEL);
  EXPECT_EQ(End(stream), graph);
  Begin(stream);
  cuuint64_t other_id = 0;
  EXPECT_EQ(Cu().cuStreamGetCaptureInfo(stream, &status, &other_id), CUDA_SUCCESS);
  EXPECT_NE(other_id, id);
  (void)End(stream);
}

TEST_F(Capture, BranchesJoinThroughEvents) {
  CUstream origin = Stream();
  CUstream branch = Stream();
  CUevent fork = Event(CU_EVENT_DISABLE_TIMING);
  CUevent join = Event(CU_EVENT_DISABLE_TIMING);
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  Begin(origin);
  Append(origin, 1);
  ASSERT_EQ(Cu().cuEventRecord(fork, origin), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(branch, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(StatusOf(branch), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  ASSERT_EQ(Launch(increment_, 1, 1, branch, counter), CUDA_SUCCESS);
  ASSERT_EQ(Launch(increment_, 1, 1, origin, counter), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(join, branch), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(origin, join, 0), CUDA_SUCCESS);
  Append(origin, 2);
  CUgraph graph = End(origin);
  EXPECT_EQ(StatusOf(branch), CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(CountNodes(graph), 4u);
  EXPECT_EQ(CountEdges(graph), 4u);
  CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec, branch), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 6u);
}

TEST_F(Capture, ABranchMustJoin) {
  CUstream origin = Stream();
  CUstream branch = Stream();
  CUevent fork = Event();
  Begin(origin);
  Append(origin, 1);
  ASSERT_EQ(Cu().cuEventRecord(fork, origin), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(branch, fork, 0), CUDA_SUCCESS);
  Append(branch, 2);
  CUgraph graph = nullptr;
  EXPECT_EQ(Cu().cuStreamEndCapture(origin, &graph), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  EXPECT_EQ(graph, nullptr);
  EXPECT_EQ(StatusOf(branch), CU_STREAM_CAPTURE_STATUS_NONE);
  Append(branch, 3);
  EXPECT_EQ(Journal(), Order{3});
}

TEST_F(Capture, TheModeSaysWhoMayAllocate) {
  CUstream stream = Stream();
  const auto allocate = [&](CUstreamCaptureMode thread_mode) {
    CUresult result = CUDA_ERROR_UNKNOWN;
    std::thread([&] {
      EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuThreadExchangeStreamCaptureMode(&thread_mode), CUDA_SUCCESS);
      EXPECT_EQ(thread_mode, kGlobal);
      CUdeviceptr memory = 0;
      result = Cu().cuMemAlloc_v2(&memory, 4096);
      if (result == CUDA_SUCCESS) result = Cu().cuMemFree_v2(memory);
    }).join();
    return result;
  };
  Begin(stream, kGlobal);
  EXPECT_EQ(allocate(kThreadLocal), CUDA_SUCCESS);
  EXPECT_EQ(allocate(kRelaxed), CUDA_SUCCESS);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(allocate(kGlobal), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  EndBroken(stream);
  Begin(stream, kThreadLocal);
  EXPECT_EQ(allocate(kGlobal), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, 4096), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EndBroken(stream);
  Begin(stream, kRelaxed);
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
  (void)End(stream);
}

TEST_F(Capture, ABlockingStreamForbidsTheLegacyStream) {
  CUstream stream = Stream(CU_STREAM_DEFAULT);
  Begin(stream);
  CUstreamCaptureStatus status;
  EXPECT_EQ(Cu().cuStreamIsCapturing(nullptr, &status), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EXPECT_EQ(StatusOf(stream), CU_STREAM_CAPTURE_STATUS_ACTIVE);
  void* parameters[] = {&journal_};
  EXPECT_EQ(
      Cu().cuLaunchKernel(increment_, 1, 1, 1, 1, 1, 1, 0, CU_STREAM_LEGACY, parameters, nullptr),
      CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  EndBroken(stream);
  EXPECT_EQ(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS);
}

TEST_F(Capture, DependenciesCanBeSet) {
  if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
  CUstream stream = Stream();
  Begin(stream);
  Append(stream, 1);
  EXPECT_EQ(Cu().cuStreamUpdateCaptureDependencies_v2(stream, nullptr, nullptr, 0,
                                                      CU_STREAM_SET_CAPTURE_DEPENDENCIES),
            CUDA_SUCCESS);
  Append(stream, 2);
  CUgraph graph = End(stream);
  EXPECT_EQ(CountNodes(graph), 2u);
  EXPECT_EQ(CountEdges(graph), 0u);
}

TEST_F(Capture, GoesOnInAGraphThatIsThere) {
  if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
  CUstream stream = Stream();
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUgraphNode first = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEmptyNode(&first, graph, nullptr, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamBeginCaptureToGraph(stream, graph, &first, nullptr, 1, kThreadLocal),
            CUDA_SUCCESS);
  Append(stream, 5);
  EXPECT_EQ(End(stream), graph);
  EXPECT_EQ(CountNodes(graph), 2u);
  EXPECT_EQ(CountEdges(graph), 1u);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph), stream), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), Order{5});
}

TEST_F(Capture, AGraphsLaunchIsRefused) {
  CUstream stream = Stream(), other = Stream();
  Begin(stream);
  Append(stream, 2);
  CUgraphExec exec = Instantiate(End(stream));
  for (const CUstreamCaptureMode mode : {kGlobal, kThreadLocal, kRelaxed}) {
    Begin(stream, mode);
    Append(stream, 1);
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    EndBroken(stream);
  }
  // Into another stream it may be launched; destroying it may be unsafe.
  Begin(stream);
  Append(stream, 1);
  EXPECT_EQ(Cu().cuGraphLaunch(exec, other), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  if (Cu().cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS) graphs_.push_back(graph);
  EXPECT_EQ(Journal(), Order{2});
}

TEST_F(Capture, ParametersAreTakenWhenTheyAreCaptured) {
  CUstream stream = Stream();
  uint32_t id = 8;
  void* parameters[] = {&journal_, &id};
  Begin(stream);
  ASSERT_EQ(Cu().cuLaunchKernel(append_, 1, 1, 1, 1, 1, 1, 0, stream, parameters, nullptr),
            CUDA_SUCCESS);
  id = 9;
  CUgraph graph = End(stream);
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_EQ(Cu().cuGraphGetNodes(graph, &node, &count), CUDA_SUCCESS);
  CUDA_KERNEL_NODE_PARAMS shown{};
  ASSERT_EQ(Cu().cuGraphKernelNodeGetParams_v2(node, &shown), CUDA_SUCCESS);
  EXPECT_EQ(shown.blockDimX, 1u);
  ASSERT_NE(shown.kernelParams, nullptr);
  EXPECT_EQ(*static_cast<uint32_t*>(shown.kernelParams[1]), 8u);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph), stream), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), Order{8});
}

TEST_F(Capture, EventsCanBeRecordedFromWithin) {
  CUstream stream = Stream();
  CUevent event = Event(CU_EVENT_DISABLE_TIMING);
  Begin(stream);
  Append(stream, 1);
  ASSERT_EQ(Cu().cuEventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL), CUDA_SUCCESS);
  CUgraph graph = End(stream);
  EXPECT_EQ(CountNodes(graph), 2u);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(graph);
  Block(stream);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  CUstream other = Stream();
  ASSERT_EQ(Cu().cuStreamWaitEvent(other, event, 0), CUDA_SUCCESS);
  Append(other, 2);
  Open();
  EXPECT_EQ(Cu().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 2}));
}

TEST_F(Capture, PageableMemoryIsReadWhenTheGraphRuns) {
  CUstream stream = Stream();
  const CUdeviceptr memory = Alloc(4096);
  std::vector<uint32_t> from = Pattern(1024, 1);
  std::vector<uint32_t> to(1024);
  Begin(stream);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, from.data(), 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(to.data(), memory, 4096, stream), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(End(stream));
  for (uint32_t seed = 2; seed < 5; ++seed) {
    const std::vector<uint32_t> values = Pattern(1024, seed);
    from.assign(values.begin(), values.end());
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(to, values);
  }
}

TEST_F(Capture, HostFunctionsRunWithTheGraph) {
  CUstream stream = Stream();
  uint32_t* journal = static_cast<uint32_t*>(HostAlloc(64));
  const auto count = [](void* data) { ++*static_cast<uint32_t*>(data); };
  Begin(stream);
  Append(stream, 1);
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, count, journal), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(journal_ + 60, journal, 4, stream), CUDA_SUCCESS);
  CUgraph graph = End(stream);
  EXPECT_EQ(CountNodes(graph), 3u);
  EXPECT_EQ(*journal, 0u);
  CUgraphExec exec = Instantiate(graph);
  for (uint32_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(*journal, i);
    EXPECT_EQ(Download<uint32_t>(journal_ + 60, 1)[0], i);
  }
}

TEST_F(Capture, MemoryOfACaptureIsTheProgramsUntilItFreesIt) {
  CUstream stream = Stream();
  CUdeviceptr memory = 0;
  Begin(stream);
  ASSERT_EQ(Cu().cuMemAllocAsync(&memory, 4096, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(memory, 7, 1024, stream), CUDA_SUCCESS);
  CUgraph graph = End(stream);
  EXPECT_EQ(CountNodes(graph), 2u);
  CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(memory, 1024)[1023], 7u);
    ASSERT_EQ(Cu().cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
  }
  CUgraphExec again = nullptr;
  ASSERT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  execs_.clear();
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&again, graph,
                                             CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH),
            CUDA_SUCCESS);
  execs_.push_back(again);
  ASSERT_EQ(Cu().cuGraphLaunch(again, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(again, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
