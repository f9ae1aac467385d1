// SPDX-License-Identifier: Apache-2.0
// Executable graphs at work: host nodes, pageable memory, events inside, launches that queue,
// updates between launches, graphs of many nodes.
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Nodes = std::vector<CUgraphNode>;

// Adds its value to the list when the graph comes to it.
struct Note {
  std::vector<uint32_t>* list;
  uint32_t value;
  static void CUDA_CB Take(void* note) {
    auto* self = static_cast<Note*>(note);
    self->list->push_back(self->value);
  }
};

struct Gate {
  std::atomic<int> entered{0};
  std::atomic<bool> open{false};
  static void CUDA_CB Pass(void* gate) {
    auto* self = static_cast<Gate*>(gate);
    ++self->entered;
    while (!self->open) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void WaitEntered() const {
    while (entered == 0) std::this_thread::yield();
  }
};

// Changes a word of the program's memory, which a copy behind it takes.
struct Change {
  uint32_t* word;
  static void CUDA_CB AddOne(void* change) { ++*static_cast<Change*>(change)->word; }
};

class GraphRuns : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    memory_ = Alloc(1 << 20);
    ASSERT_EQ(Cu().cuMemsetD32_v2(memory_, 0, (1 << 20) / 4), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    stream_ = Stream();
  }
  void TearDown() override {
    if (exec_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    }
    if (graph_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    }
    WithKernels::TearDown();
  }

  CUgraphNode AddHost(CUhostFn function, void* data, const Nodes& after = {}) {
    const CUDA_HOST_NODE_PARAMS params = {function, data};
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddHostNode(&node, graph_, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  CUgraphNode AddIncrement(CUdeviceptr target, const Nodes& after = {}) {
    void* values[] = {&target};
    CUDA_KERNEL_NODE_PARAMS params = {};
    params.func = Function("increment");
    params.gridDimX = params.gridDimY = params.gridDimZ = 1;
    params.blockDimX = params.blockDimY = params.blockDimZ = 1;
    params.kernelParams = values;
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph_, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  CUDA_MEMCPY3D Between(void* host, CUdeviceptr device, size_t bytes, bool to_host) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = to_host ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
    copy.dstMemoryType = to_host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
    (to_host ? copy.srcDevice : copy.dstDevice) = device;
    if (to_host) {
      copy.dstHost = host;
    } else {
      copy.srcHost = host;
    }
    copy.WidthInBytes = bytes;
    copy.Height = copy.Depth = 1;
    return copy;
  }
  CUgraphNode AddCopy(const CUDA_MEMCPY3D& copy, const Nodes& after = {}) {
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddMemcpyNode(&node, graph_, after.data(), after.size(), &copy, context_),
              CUDA_SUCCESS);
    return node;
  }
  CUgraphNode AddFill(CUdeviceptr to, unsigned value, size_t count, const Nodes& after = {}) {
    const CUDA_MEMSET_NODE_PARAMS fill = {to, 0, value, 4, count, 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddMemsetNode(&node, graph_, after.data(), after.size(), &fill, context_),
              CUDA_SUCCESS);
    return node;
  }
  void Instantiate() {
    ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  void Run() {
    ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  uint32_t Word(size_t index = 0) { return Download<uint32_t>(memory_ + index * 4, 1)[0]; }

  CUdeviceptr memory_ = 0;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(GraphRuns, HostNodesRunInTheirPlaceEveryTime) {
  std::vector<uint32_t> list;
  Note notes[] = {{&list, 1}, {&list, 2}, {&list, 3}};
  CUgraphNode last = AddIncrement(memory_);
  for (Note& note : notes) last = AddIncrement(memory_, {AddHost(Note::Take, &note, {last})});
  Instantiate();
  Run();
  EXPECT_EQ(list, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(Word(), 4u);
  Run();
  EXPECT_EQ(list, (std::vector<uint32_t>{1, 2, 3, 1, 2, 3}));
  EXPECT_EQ(Word(), 8u);
}

TEST_F(GraphRuns, AHostNodeHoldsWhatIsBehindIt) {
  Gate gate;
  const CUgraphNode held = AddHost(Gate::Pass, &gate, {AddIncrement(memory_)});
  AddIncrement(memory_ + 4, {held});
  Instantiate();
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  gate.WaitEntered();
  EXPECT_EQ(Cu().cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  CUstream other = Stream();
  uint32_t words[2] = {};
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(words, memory_, sizeof(words), other), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(words[0], 1u);
  EXPECT_EQ(words[1], 0u);
  gate.open = true;
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(1), 1u);
}

TEST_F(GraphRuns, LaunchesWithHostNodesQueue) {
  std::vector<uint32_t> list;
  Note note{&list, 7};
  AddIncrement(memory_, {AddHost(Note::Take, &note)});
  Instantiate();
  for (int i = 0; i < 50; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(list.size(), 50u);
  EXPECT_EQ(Word(), 50u);
}

TEST_F(GraphRuns, HostNodesBesideEachOtherAllRun) {
  std::atomic<int> calls{0};
  const auto count = [](void* data) { ++*static_cast<std::atomic<int>*>(data); };
  const CUgraphNode first = AddIncrement(memory_);
  Nodes ends;
  for (uint32_t i = 1; i <= 40; ++i) {
    // Every fourth stands behind the one before it by itself.
    const Nodes after = i % 4 == 0 ? Nodes{first, ends.back()} : Nodes{first};
    ends.push_back(AddHost(count, &calls, after));
    AddIncrement(memory_ + i * 4, {ends.back()});
  }
  AddIncrement(memory_, ends);
  Instantiate();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(calls, 120);
  EXPECT_EQ(Word(), 6u);
  for (size_t i = 1; i <= 40; ++i) EXPECT_EQ(Word(i), 3u) << i;
}

// More streams than the device has queues, each with more than is handed over at a time, while a graph
// waits for its function: whoever serves that must not stand in a full queue.
TEST_F(GraphRuns, StreamsFillWhileAHostNodeWaits) {
  constexpr uint32_t kStreams = 80, kLaunches = 250;
  Gate gate;
  AddIncrement(memory_, {AddHost(Gate::Pass, &gate)});
  Instantiate();
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  gate.WaitEntered();
  // Natively a launch may wait for room, so somebody else opens the gate.
  std::atomic<bool> all_launched{false};
  std::thread opener([&] {
    for (int i = 0; i < 1000 && !all_launched; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    gate.open = true;
  });
  std::vector<CUstream> streams;
  for (uint32_t i = 0; i < kStreams; ++i) streams.push_back(Stream());
  const CUfunction increment = Function("increment");
  for (uint32_t i = 0; i < kStreams; ++i) {
    for (uint32_t k = 0; k < kLaunches; ++k) {
      ASSERT_EQ(Launch(increment, 1, 1, streams[i], memory_ + (i + 1) * 4), CUDA_SUCCESS);
    }
  }
  all_launched = true;
  opener.join();
  for (const CUstream stream : streams) {
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 1u);
  for (uint32_t i = 1; i <= kStreams; ++i) EXPECT_EQ(Word(i), kLaunches) << i;
}

TEST_F(GraphRuns, AHostNodesFunctionChanges) {
  std::vector<uint32_t> list;
  Note one{&list, 1};
  Note two{&list, 2};
  const CUgraphNode node = AddHost(Note::Take, &one);
  Instantiate();
  Run();
  const CUDA_HOST_NODE_PARAMS changed = {Note::Take, &two};
  ASSERT_EQ(Cu().cuGraphExecHostNodeSetParams(exec_, node, &changed), CUDA_SUCCESS);
  Run();
  EXPECT_EQ(list, (std::vector<uint32_t>{1, 2}));
}

TEST_F(GraphRuns, CapturedHostFunctionsRunWithTheGraph) {
  std::vector<uint32_t> list;
  Note note{&list, 5};
  CUgraph captured = nullptr;
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("increment"), 1, 1, stream_, memory_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream_, Note::Take, &note), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamEndCapture(stream_, &captured), CUDA_SUCCESS);
  EXPECT_TRUE(list.empty());
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec_, captured, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(captured), CUDA_SUCCESS);
  Run();
  Run();
  EXPECT_EQ(list, (std::vector<uint32_t>{5, 5}));
  EXPECT_EQ(Word(), 2u);
}

TEST_F(GraphRuns, PageableMemoryIsReadAndWrittenWhenTheGraphRuns) {
  std::vector<uint32_t> in(1000, 1);
  std::vector<uint32_t> out(1000, 0);
  const CUgraphNode down = AddCopy(Between(in.data(), memory_, 4000, false));
  AddCopy(Between(out.data(), memory_, 4000, true), {AddIncrement(memory_ + 400, {down})});
  Instantiate();
  std::iota(in.begin(), in.end(), 0u);
  Run();
  std::vector<uint32_t> expected = in;
  ++expected[100];
  EXPECT_EQ(out, expected);
  in[7] = 70;
  expected[7] = 70;
  Run();
  EXPECT_EQ(out, expected);
}

TEST_F(GraphRuns, ArraysAreCopiedToAndFrom) {
  CUDA_ARRAY_DESCRIPTOR shape = {};
  shape.Width = 16;
  shape.Height = 8;
  shape.Format = CU_AD_FORMAT_UNSIGNED_INT32;
  shape.NumChannels = 1;
  CUarray array = nullptr;
  ASSERT_EQ(Cu().cuArrayCreate_v2(&array, &shape), CUDA_SUCCESS);
  std::vector<uint32_t> words(128);
  std::iota(words.begin(), words.end(), 100u);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(memory_, words.data(), 512), CUDA_SUCCESS);
  CUDA_MEMCPY3D up = {};
  up.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  up.srcDevice = memory_;
  up.srcPitch = 64;
  up.srcHeight = 8;
  up.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  up.dstArray = array;
  up.WidthInBytes = 64;
  up.Height = 8;
  up.Depth = 1;
  // The inner four rows' second half.
  CUDA_MEMCPY3D down = {};
  down.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  down.srcArray = array;
  down.srcXInBytes = 32;
  down.srcY = 2;
  down.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  down.dstDevice = memory_ + 4096;
  down.dstPitch = 32;
  down.dstHeight = 4;
  down.WidthInBytes = 32;
  down.Height = 4;
  down.Depth = 1;
  AddCopy(down, {AddCopy(up)});
  Instantiate();
  Run();
  const auto got = Download<uint32_t>(memory_ + 4096, 32);
  for (uint32_t i = 0; i < 32; ++i) {
    EXPECT_EQ(got[i], 100 + (2 + i / 8) * 16 + 8 + i % 8) << i;
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
  exec_ = nullptr;
  EXPECT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS);
}

TEST_F(GraphRuns, AFunctionMayPrepareWhatIsCopiedBehindIt) {
  auto* word = static_cast<uint32_t*>(HostAlloc(64));
  Change change{word};
  *word = 40;
  AddCopy(Between(word, memory_, 4, false), {AddHost(Change::AddOne, &change)});
  Instantiate();
  Run();
  EXPECT_EQ(Word(), 41u);
  Run();
  EXPECT_EQ(Word(), 42u);
}

TEST_F(GraphRuns, EventsInsideMeasureTheNodesBetween) {
  CUevent begin = Event();
  CUevent end = Event();
  CUgraphNode first = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEventRecordNode(&first, graph_, nullptr, 0, begin), CUDA_SUCCESS);
  uint64_t nanoseconds = 20'000'000;
  void* values[] = {&nanoseconds};
  CUDA_KERNEL_NODE_PARAMS params = {};
  params.func = Function("spin");
  params.gridDimX = params.gridDimY = params.gridDimZ = 1;
  params.blockDimX = params.blockDimY = params.blockDimZ = 1;
  params.kernelParams = values;
  CUgraphNode spin = nullptr;
  ASSERT_EQ(Cu().cuGraphAddKernelNode_v2(&spin, graph_, &first, 1, &params), CUDA_SUCCESS);
  CUgraphNode last = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEventRecordNode(&last, graph_, &spin, 1, end), CUDA_SUCCESS);
  Instantiate();
  for (int i = 0; i < 2; ++i) {
    Run();
    EXPECT_EQ(Cu().cuEventQuery(end), CUDA_SUCCESS);
    float milliseconds = 0;
    ASSERT_EQ(Cu().cuEventElapsedTime(&milliseconds, begin, end), CUDA_SUCCESS);
    EXPECT_GT(milliseconds, 15.0F);
    EXPECT_LT(milliseconds, 15'000.0F);  // which it would be in microseconds
  }
}

TEST_F(GraphRuns, WhatIsRecordedChanges) {
  CUevent events[3] = {Event(), Event(), Event()};
  Nodes nodes;
  for (const CUevent event : events) {
    CUgraphNode node = nullptr;
    ASSERT_EQ(Cu().cuGraphAddEventRecordNode(&node, graph_, nodes.empty() ? nullptr : &nodes.back(),
                                             nodes.empty() ? 0 : 1, event),
              CUDA_SUCCESS);
    nodes.push_back(node);
  }
  Instantiate();
  CUevent other = Event();
  ASSERT_EQ(Cu().cuGraphExecEventRecordNodeSetEvent(exec_, nodes[1], other), CUDA_SUCCESS);
  Run();
  float milliseconds = 0;
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, events[0], other), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, other, events[2]), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, events[0], events[1]),
            CUDA_ERROR_INVALID_HANDLE);
  // Two at once.
  CUevent last = Event();
  ASSERT_EQ(Cu().cuGraphEventRecordNodeSetEvent(nodes[2], last), CUDA_SUCCESS);
  CUgraphExecUpdateResultInfo info = {};
  ASSERT_EQ(Cu().cuGraphExecUpdate_v2(exec_, graph_, &info), CUDA_SUCCESS);
  Run();
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, events[0], events[1]), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventElapsedTime(&milliseconds, events[1], last), CUDA_SUCCESS);
}

TEST_F(GraphRuns, LaunchesOfOneGraphFollowEachOtherAcrossStreams) {
  CUgraphNode node = nullptr;
  for (int i = 0; i < 4; ++i) node = AddIncrement(memory_, node == nullptr ? Nodes{} : Nodes{node});
  Instantiate();
  CUstream streams[] = {Stream(), Stream(), Stream()};
  Block(streams[0]);
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(Cu().cuGraphLaunch(exec_, streams[i % 3]), CUDA_SUCCESS);
  }
  EXPECT_EQ(Cu().cuStreamQuery(streams[1]), CUDA_ERROR_NOT_READY);
  Open();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 120u);
}

TEST_F(GraphRuns, UpdatesAreForLaterLaunches) {
  const CUgraphNode fill = AddFill(memory_, 1, 1);
  Instantiate();
  Block(stream_);
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  // Where a stream that waits for the first launch puts what that has written.
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(memory_ + 64, memory_, 4, stream_), CUDA_SUCCESS);
  const auto change = [&](unsigned value) {
    const CUDA_MEMSET_NODE_PARAMS changed = {memory_, 0, value, 4, 1, 1};
    ASSERT_EQ(Cu().cuGraphExecMemsetNodeSetParams(exec_, fill, &changed, context_), CUDA_SUCCESS);
  };
  change(5);
  change(2);
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(memory_ + 128, memory_, 4, stream_), CUDA_SUCCESS);
  change(3);
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(16), 1u);
  EXPECT_EQ(Word(32), 2u);
  EXPECT_EQ(Word(), 3u);
}

TEST_F(GraphRuns, NodesCanBePassedOver) {
  const CUgraphNode first = AddIncrement(memory_);
  const CUgraphNode second = AddIncrement(memory_ + 4, {first});
  AddIncrement(memory_ + 8, {second});
  Instantiate();
  ASSERT_EQ(Cu().cuGraphNodeSetEnabled(exec_, second, 0), CUDA_SUCCESS);
  unsigned enabled = 9;
  EXPECT_EQ(Cu().cuGraphNodeGetEnabled(exec_, second, &enabled), CUDA_SUCCESS);
  EXPECT_EQ(enabled, 0u);
  Run();
  ASSERT_EQ(Cu().cuGraphNodeSetEnabled(exec_, second, 1), CUDA_SUCCESS);
  Run();
  EXPECT_EQ(Word(0), 2u);
  EXPECT_EQ(Word(1), 1u);
  EXPECT_EQ(Word(2), 2u);
}

TEST_F(GraphRuns, ADestroyedGraphFinishesItsLaunches) {
  AddIncrement(memory_);
  Instantiate();
  Block(stream_);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
  exec_ = nullptr;
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(), 3u);
}

// As many as nobody runs side by side, and again with other values.
TEST_F(GraphRuns, ManyNodesWithoutEdges) {
  constexpr uint32_t kNodes = 6000;
  Nodes nodes(kNodes);
  for (uint32_t i = 0; i < kNodes; ++i) nodes[i] = AddFill(memory_ + i * 4, i + 1, 1);
  Instantiate();
  Run();
  for (uint32_t i = 0; i < kNodes; ++i) ASSERT_EQ(Word(i), i + 1);
  const CUDA_MEMSET_NODE_PARAMS other = {memory_ + (kNodes - 1) * 4, 0, 7, 4, 1, 1};
  ASSERT_EQ(Cu().cuGraphExecMemsetNodeSetParams(exec_, nodes.back(), &other, context_),
            CUDA_SUCCESS);
  Run();
  EXPECT_EQ(Word(kNodes - 1), 7u);
  EXPECT_EQ(Word(kNodes - 2), kNodes - 1);
  size_t edges = 1;
  ASSERT_EQ(Cu().cuGraphGetEdges(graph_, nullptr, nullptr, &edges), CUDA_SUCCESS);
  EXPECT_EQ(edges, 0u);
}

TEST_F(GraphRuns, ManyNodes) {
  // Larger than what travels in the ring; branches of ten.
  constexpr uint32_t kNodes = 3000;
  Nodes branch(10);
  for (uint32_t i = 0; i < kNodes; ++i) {
    CUgraphNode& last = branch[i % 10];
    last = AddIncrement(memory_ + (i % 10) * 4, last == nullptr ? Nodes{} : Nodes{last});
  }
  Instantiate();
  ASSERT_EQ(Cu().cuGraphUpload(exec_, stream_), CUDA_SUCCESS);
  Run();
  Run();
  for (size_t i = 0; i < 10; ++i) EXPECT_EQ(Word(i), 2 * kNodes / 10);
}

TEST_F(GraphRuns, MemoryOperationsWaitAndWrite) {
  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operations[0].waitValue.address = memory_;
  operations[0].waitValue.value = 3;
  operations[0].waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  operations[1].operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operations[1].writeValue.address = memory_ + 4;
  operations[1].writeValue.value = 9;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context_, 2, operations, 0};
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &batch), CUDA_SUCCESS);
  AddIncrement(memory_ + 4, {node});
  Instantiate();
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  CUstream other = Stream();
  ASSERT_EQ(Cu().cuMemsetD32Async(memory_, 3, 1, other), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(1), 10u);
}

CUstreamBatchMemOpParams WaitFor(CUdeviceptr word, uint32_t value) {
  CUstreamBatchMemOpParams wait = {};
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = word;
  wait.waitValue.value = value;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_GEQ;
  return wait;
}

TEST_F(GraphRuns, AWaitMayBeForWhatAnotherBranchWrites) {
  constexpr uint32_t kBranches = 12;
  for (uint32_t i = 0; i < kBranches; ++i) {
    CUstreamBatchMemOpParams wait = WaitFor(memory_, 3);
    const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context_, 1, &wait, 0};
    CUgraphNode node = nullptr;
    ASSERT_EQ(Cu().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &batch), CUDA_SUCCESS);
    AddIncrement(memory_ + 4 + 4 * i, {node});
  }
  CUgraphNode last = AddIncrement(memory_);
  for (int i = 0; i < 2; ++i) last = AddIncrement(memory_, {last});
  Instantiate();
  Run();
  for (uint32_t i = 0; i < kBranches; ++i) EXPECT_EQ(Word(1 + i), 1u) << i;
}

TEST_F(GraphRuns, IsUpdatedWhileItWaits) {
  CUstreamBatchMemOpParams wait = WaitFor(memory_, 3);
  CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context_, 1, &wait, 0};
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &batch), CUDA_SUCCESS);
  AddIncrement(memory_ + 4, {node});
  Instantiate();
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  wait = WaitFor(memory_, 5);
  ASSERT_EQ(Cu().cuGraphExecBatchMemOpNodeSetParams(exec_, node, &batch), CUDA_SUCCESS);
  CUstream other = Stream();
  ASSERT_EQ(Cu().cuMemsetD32Async(memory_, 4, 1, other), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(1), 1u);
  ASSERT_EQ(Cu().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(stream_), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(Cu().cuMemsetD32Async(memory_, 5, 1, other), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Word(1), 2u);
}

}  // namespace
}  // namespace gpuloom::conformance
