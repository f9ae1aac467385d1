// SPDX-License-Identifier: Apache-2.0
// Graphs built by hand: nodes and edges, executable graphs, their updates, user objects.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Order = std::vector<uint32_t>;

class Graphs : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    journal_ = Alloc(64);
    ASSERT_EQ(Cu().cuMemsetD32_v2(journal_, 0, 16), CUDA_SUCCESS);
    append_ = Function("append");
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    stream_ = Stream();
  }
  void TearDown() override {
    for (CUgraphExec exec : execs_) EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    if (graph_ != nullptr) {
      EXPECT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
    }
    WithKernels::TearDown();
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
  CUgraphNode AddAppend(CUgraph graph, const std::vector<CUgraphNode>& after, uint32_t id) {
    const CUDA_KERNEL_NODE_PARAMS params = AppendOf(&id);
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cu().cuGraphAddKernelNode_v2(&node, graph, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  CUgraphExec Instantiate(CUgraph graph) {
    CUgraphExec exec = nullptr;
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    if (exec != nullptr) execs_.push_back(exec);
    return exec;
  }
  Order Journal() {
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    std::vector<uint32_t> words = Download<uint32_t>(journal_, 16);
    const uint32_t count = words[0] < 15 ? words[0] : 15;
    EXPECT_EQ(Cu().cuMemsetD32_v2(journal_, 0, 1), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    return {words.begin() + 1, words.begin() + 1 + count};
  }

  CUdeviceptr journal_ = 0;
  CUfunction append_ = nullptr;
  CUgraph graph_ = nullptr;
  CUstream stream_ = nullptr;
  void* values_[2] = {};
  std::vector<CUgraphExec> execs_;
};

TEST_F(Graphs, RunTheirNodesInOrder) {
  CUgraphNode first = AddAppend(graph_, {}, 1);
  CUgraphNode last = AddAppend(graph_, {first}, 3);
  CUgraphNode middle = AddAppend(graph_, {first}, 2);
  ASSERT_EQ(IsDriverBelow(12030)
                ? Cu().cuGraphAddDependencies(graph_, &middle, &last, 1)
                : Cu().cuGraphAddDependencies_v2(graph_, &middle, &last, nullptr, 1),
            CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(graph_);
  ASSERT_EQ(Cu().cuGraphUpload(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 2, 3, 1, 2, 3}));
}

TEST_F(Graphs, CopyAndFill) {
  const CUdeviceptr memory = Alloc(4096);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(4096));
  CUDA_MEMSET_NODE_PARAMS fill{};
  fill.dst = memory;
  fill.elementSize = 2;
  fill.value = 0x1234;
  fill.pitch = 64;
  fill.width = 16;
  fill.height = 4;
  CUgraphNode filled = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemsetNode(&filled, graph_, nullptr, 0, &fill, context_), CUDA_SUCCESS);
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = memory;
  copy.srcPitch = 64;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned;
  copy.dstPitch = 32;
  copy.WidthInBytes = 32;
  copy.Height = 4;
  copy.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemcpyNode(&copied, graph_, &filled, 1, &copy, context_), CUDA_SUCCESS);
  CUDA_MEMSET_NODE_PARAMS shown{};
  ASSERT_EQ(Cu().cuGraphMemsetNodeGetParams(filled, &shown), CUDA_SUCCESS);
  EXPECT_EQ(shown.width, 16u);
  EXPECT_EQ(shown.value, 0x1234u);
  CUDA_MEMCPY3D shown_copy{};
  ASSERT_EQ(Cu().cuGraphMemcpyNodeGetParams(copied, &shown_copy), CUDA_SUCCESS);
  EXPECT_EQ(shown_copy.dstHost, pinned);
  EXPECT_EQ(shown_copy.WidthInBytes, 32u);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph_), stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) ASSERT_EQ(pinned[i], 0x12341234u) << i;
  EXPECT_EQ(pinned[32], 0u);
}

TEST_F(Graphs, ShowTheirNodesAndEdges) {
  if (IsDriverBelow(12030)) GTEST_SKIP() << "CUDA 12.3 has it first";
  CUgraphNode a = AddAppend(graph_, {}, 1);
  CUgraphNode b = AddAppend(graph_, {a}, 2);
  CUgraphNode c = AddAppend(graph_, {a, b}, 3);
  size_t count = 0;
  ASSERT_EQ(Cu().cuGraphGetNodes(graph_, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  std::vector<CUgraphNode> nodes(5, a);
  count = 5;
  ASSERT_EQ(Cu().cuGraphGetNodes(graph_, nodes.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  EXPECT_EQ(nodes, (std::vector<CUgraphNode>{a, b, c, nullptr, nullptr}));
  count = 1;
  ASSERT_EQ(Cu().cuGraphGetRootNodes(graph_, nodes.data(), &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  EXPECT_EQ(nodes[0], a);
  ASSERT_EQ(Cu().cuGraphGetEdges_v2(graph_, nullptr, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 3u);
  count = 2;
  ASSERT_EQ(Cu().cuGraphNodeGetDependencies_v2(c, nodes.data(), nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(Cu().cuGraphNodeGetDependentNodes_v2(a, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(Cu().cuGraphRemoveDependencies_v2(graph_, &a, &c, nullptr, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphNodeGetDependentNodes_v2(a, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 1u);
  ASSERT_EQ(Cu().cuGraphDestroyNode(b), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphNodeGetDependencies_v2(c, nullptr, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 0u);
}

TEST_F(Graphs, ChildrenRunInTheirPlace) {
  CUgraph child = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&child, 0), CUDA_SUCCESS);
  CUgraphNode inner = AddAppend(child, {}, 2);
  (void)AddAppend(child, {inner}, 3);
  CUgraphNode first = AddAppend(graph_, {}, 1);
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cu().cuGraphAddChildGraphNode(&node, graph_, &first, 1, child), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphDestroy(child), CUDA_SUCCESS);
  (void)AddAppend(graph_, {node}, 4);
  CUgraph embedded = nullptr;
  ASSERT_EQ(Cu().cuGraphChildGraphNodeGetGraph(node, &embedded), CUDA_SUCCESS);
  size_t count = 0;
  ASSERT_EQ(Cu().cuGraphGetNodes(embedded, nullptr, &count), CUDA_SUCCESS);
  EXPECT_EQ(count, 2u);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph_), stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 2, 3, 4}));
}

TEST_F(Graphs, ClonesAreOnTheirOwn) {
  CUgraphNode node = AddAppend(graph_, {}, 1);
  CUgraph clone = nullptr;
  ASSERT_EQ(Cu().cuGraphClone(&clone, graph_), CUDA_SUCCESS);
  CUgraphNode cloned = nullptr;
  ASSERT_EQ(Cu().cuGraphNodeFindInClone(&cloned, node, clone), CUDA_SUCCESS);
  EXPECT_NE(cloned, node);
  uint32_t id = 7;
  const CUDA_KERNEL_NODE_PARAMS params = AppendOf(&id);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(cloned, &params), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(graph_), stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(Instantiate(clone), stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{1, 7}));
  EXPECT_EQ(Cu().cuGraphDestroy(clone), CUDA_SUCCESS);
}

TEST_F(Graphs, AnExecutableGraphKeepsWhatItWasMadeFrom) {
  CUgraphNode node = AddAppend(graph_, {}, 1);
  CUgraphExec exec = Instantiate(graph_);
  uint32_t id = 2;
  const CUDA_KERNEL_NODE_PARAMS params = AppendOf(&id);
  ASSERT_EQ(Cu().cuGraphKernelNodeSetParams_v2(node, &params), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), Order{1});
}

TEST_F(Graphs, NodesOfAnExecutableGraphChange) {
  CUgraphNode node = AddAppend(graph_, {}, 1);
  (void)AddAppend(graph_, {node}, 9);
  CUgraphExec exec = Instantiate(graph_);
  Block(stream_);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  uint32_t id = 2;
  CUDA_KERNEL_NODE_PARAMS params = AppendOf(&id);
  ASSERT_EQ(Cu().cuGraphExecKernelNodeSetParams_v2(exec, node, &params), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  Open();
  EXPECT_EQ(Journal(), (Order{1, 9, 2, 9}));
  ASSERT_EQ(Cu().cuGraphNodeSetEnabled(exec, node, 0), CUDA_SUCCESS);
  unsigned enabled = 1;
  ASSERT_EQ(Cu().cuGraphNodeGetEnabled(exec, node, &enabled), CUDA_SUCCESS);
  EXPECT_EQ(enabled, 0u);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), Order{9});
  ASSERT_EQ(Cu().cuGraphNodeSetEnabled(exec, node, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{2, 9}));
}

TEST_F(Graphs, AnExecutableGraphIsUpdatedFromAnother) {
  CUgraphNode node = AddAppend(graph_, {}, 1);
  (void)AddAppend(graph_, {node}, 2);
  CUgraphExec exec = Instantiate(graph_);
  CUgraph other = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&other, 0), CUDA_SUCCESS);
  CUgraphNode first = AddAppend(other, {}, 5);
  (void)AddAppend(other, {first}, 6);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(Cu().cuGraphExecUpdate_v2(exec, other, &info), CUDA_SUCCESS);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{5, 6}));
  (void)AddAppend(other, {}, 7);
  EXPECT_EQ(Cu().cuGraphExecUpdate_v2(exec, other, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  EXPECT_EQ(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Journal(), (Order{5, 6}));
  EXPECT_EQ(Cu().cuGraphDestroy(other), CUDA_SUCCESS);
}

TEST_F(Graphs, EventNodesOrderStreams) {
  CUevent before = Event(CU_EVENT_DISABLE_TIMING);
  CUevent after = Event(CU_EVENT_DISABLE_TIMING);
  CUstream other = Stream();
  CUgraphNode waits = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEventWaitNode(&waits, graph_, nullptr, 0, before), CUDA_SUCCESS);
  CUgraphNode node = AddAppend(graph_, {waits}, 2);
  CUgraphNode records = nullptr;
  ASSERT_EQ(Cu().cuGraphAddEventRecordNode(&records, graph_, &node, 1, after), CUDA_SUCCESS);
  CUevent shown = nullptr;
  ASSERT_EQ(Cu().cuGraphEventRecordNodeGetEvent(records, &shown), CUDA_SUCCESS);
  EXPECT_EQ(shown, after);
  CUgraphExec exec = Instantiate(graph_);
  Block(other);
  ASSERT_EQ(Launch(append_, 1, 1, other, journal_, uint32_t{1}), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuEventRecord(before, other), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitEvent(other, after, 0), CUDA_SUCCESS);
  ASSERT_EQ(Launch(append_, 1, 1, other, journal_, uint32_t{3}), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuEventQuery(after), CUDA_ERROR_NOT_READY);
  Open();
  EXPECT_EQ(Journal(), (Order{1, 2, 3}));
}

TEST_F(Graphs, UserObjectsLiveAsLongAsTheyAreHeld) {
  (void)AddAppend(graph_, {}, 1);
  int destroyed = 0;
  CUuserObject object = nullptr;
  ASSERT_EQ(Cu().cuUserObjectCreate(
                &object, &destroyed, [](void* data) { ++*static_cast<int*>(data); }, 1,
                CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphRetainUserObject(graph_, object, 1, CU_GRAPH_USER_OBJECT_MOVE),
            CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph_, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphDestroy(graph_), CUDA_SUCCESS);
  graph_ = nullptr;
  EXPECT_EQ(destroyed, 0);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  // The driver may call it later, on a thread of its own.
  for (int i = 0; i < 60'000 && static_cast<volatile int&>(destroyed) == 0; ++i) {
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    timespec pause = {0, 1'000'000};
    nanosleep(&pause, nullptr);
  }
  EXPECT_EQ(destroyed, 1);
}

TEST_F(Graphs, CanBePrinted) {
  CUgraphNode node = AddAppend(graph_, {}, 1);
  (void)AddAppend(graph_, {node}, 2);
  const std::string path = testing::TempDir() + "gpuloom_graph.dot";
  ASSERT_EQ(Cu().cuGraphDebugDotPrint(graph_, path.c_str(), CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE),
            CUDA_SUCCESS);
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  EXPECT_NE(text.str().find("digraph"), std::string::npos);
  EXPECT_NE(text.str().find("->"), std::string::npos);
}

TEST_F(Graphs, HostNodesRunInOrder) {
  auto* pinned = static_cast<uint32_t*>(HostAlloc(64));
  const auto read = [](void* data) {
    auto* words = static_cast<uint32_t*>(data);
    words[1] = words[0] * 2;
  };
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = journal_;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned;
  copy.WidthInBytes = 4;
  copy.Height = copy.Depth = 1;
  CUgraphNode node = AddAppend(graph_, {}, 1);
  CUgraphNode copied = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemcpyNode(&copied, graph_, &node, 1, &copy, context_), CUDA_SUCCESS);
  CUDA_HOST_NODE_PARAMS host = {read, pinned};
  CUgraphNode called = nullptr;
  ASSERT_EQ(Cu().cuGraphAddHostNode(&called, graph_, &copied, 1, &host), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(graph_);
  for (uint32_t i = 1; i <= 3; ++i) {
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(pinned[1], 2 * i);
  }
}

TEST_F(Graphs, KeepTheirMemoryUntilTheyHaveRun) {
  auto* pinned = static_cast<uint32_t*>(HostAlloc(4096));
  for (uint32_t turn = 1; turn <= 5; ++turn) {
    CUgraph graph = nullptr;
    ASSERT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
    CUgraphNode allocated = nullptr, filled = nullptr, copied = nullptr, freed = nullptr;
    ASSERT_EQ(Cu().cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &asked), CUDA_SUCCESS);
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = asked.dptr;
    fill.value = turn;
    fill.elementSize = 4;
    fill.width = 1024;
    fill.height = 1;
    ASSERT_EQ(Cu().cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, context_),
              CUDA_SUCCESS);
    CUDA_MEMCPY3D copy{};
    copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = asked.dptr;
    copy.dstMemoryType = CU_MEMORYTYPE_HOST;
    copy.dstHost = pinned;
    copy.WidthInBytes = 4096;
    copy.Height = copy.Depth = 1;
    ASSERT_EQ(Cu().cuGraphAddMemcpyNode(&copied, graph, &filled, 1, &copy, context_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphAddMemFreeNode(&freed, graph, &copied, 1, asked.dptr), CUDA_SUCCESS);
    CUgraphExec exec = nullptr;
    ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
    // The graph has still to begin when it is destroyed.
    ASSERT_EQ(Launch(Function("spin"), 1, 1, stream_, uint64_t{20'000'000}), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(pinned[0], turn);
    EXPECT_EQ(pinned[1023], turn);
  }
}

// A capture allocates and frees in turn: together more than the device has, never more than one part of it at a time.
TEST_F(Graphs, ReuseMemoryBehindItsFreeing) {
  size_t device_bytes = 0;
  ASSERT_EQ(Cu().cuDeviceTotalMem_v2(&device_bytes, device_), CUDA_SUCCESS);
  const size_t bytes = device_bytes / 16 & ~size_t{0xFFFFF};
  const CUdeviceptr results = Alloc(64 * 4);
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  CUdeviceptr first = 0;
  for (uint32_t i = 0; i < 64; ++i) {
    CUdeviceptr memory = 0;
    ASSERT_EQ(Cu().cuMemAllocAsync(&memory, bytes, stream_), CUDA_SUCCESS) << i;
    if (i == 0) first = memory;
    EXPECT_EQ(memory, first);
    const CUdeviceptr last_word = memory + bytes - 4;
    ASSERT_EQ(Cu().cuMemsetD32Async(last_word, i, 1, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(results + i * 4, last_word, 4, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemFreeAsync(memory, stream_), CUDA_SUCCESS);
  }
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  CUgraphExec exec = Instantiate(graph);
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Cu().cuMemsetD32Async(results, 77, 64, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    uint32_t found[64] = {};
    ASSERT_EQ(Cu().cuMemcpyDtoH_v2(found, results, sizeof(found)), CUDA_SUCCESS);
    for (uint32_t n = 0; n < 64; ++n) EXPECT_EQ(found[n], n);
  }
  uint64_t reserved = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetGraphMemAttribute(device_, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &reserved),
      CUDA_SUCCESS);
  EXPECT_GE(reserved, bytes);
  EXPECT_LT(reserved, 2 * bytes);
  ASSERT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(Graphs, AllocateForTheirNodes) {
  CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
  CUgraphNode allocated = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemAllocNode(&allocated, graph_, nullptr, 0, &asked), CUDA_SUCCESS);
  ASSERT_NE(asked.dptr, 0u);
  CUDA_MEM_ALLOC_NODE_PARAMS shown{};
  ASSERT_EQ(Cu().cuGraphMemAllocNodeGetParams(allocated, &shown), CUDA_SUCCESS);
  EXPECT_EQ(shown.dptr, asked.dptr);
  EXPECT_EQ(shown.bytesize, 4096u);
  CUfunction fill = Function("fill");
  uint32_t value = 42, count = 1024;
  void* parameters[] = {&asked.dptr, &value, &count};
  CUDA_KERNEL_NODE_PARAMS launch{};
  launch.func = fill;
  launch.gridDimX = 4;
  launch.blockDimX = 256;
  launch.gridDimY = launch.gridDimZ = launch.blockDimY = launch.blockDimZ = 1;
  launch.kernelParams = parameters;
  CUgraphNode filled = nullptr;
  ASSERT_EQ(Cu().cuGraphAddKernelNode_v2(&filled, graph_, &allocated, 1, &launch), CUDA_SUCCESS);
  auto* pinned = static_cast<uint32_t*>(HostAlloc(4096));
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = asked.dptr;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = pinned;
  copy.WidthInBytes = 4096;
  copy.Height = copy.Depth = 1;
  CUgraphNode copied = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemcpyNode(&copied, graph_, &filled, 1, &copy, context_), CUDA_SUCCESS);
  CUgraphNode freed = nullptr;
  ASSERT_EQ(Cu().cuGraphAddMemFreeNode(&freed, graph_, &copied, 1, asked.dptr), CUDA_SUCCESS);
  CUdeviceptr freed_address = 0;
  ASSERT_EQ(Cu().cuGraphMemFreeNodeGetParams(freed, &freed_address), CUDA_SUCCESS);
  EXPECT_EQ(freed_address, asked.dptr);
  CUgraph clone = nullptr;
  EXPECT_EQ(Cu().cuGraphClone(&clone, graph_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(Cu().cuGraphDestroyNode(freed), CUDA_ERROR_NOT_SUPPORTED);
  CUgraphExec exec = Instantiate(graph_);
  for (int i = 0; i < 2; ++i) {
    pinned[1023] = 0;
    ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
    EXPECT_EQ(pinned[1023], 42u);
  }
}

// Whoever captures again and updates destroys the graphs.
TEST_F(Graphs, UpdatedFromOthersHaveTheirMemory) {
  const auto make = [&](unsigned value, CUdeviceptr* address) {
    CUgraph graph = nullptr;
    EXPECT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(4096);
    CUgraphNode allocated = nullptr;
    EXPECT_EQ(Cu().cuGraphAddMemAllocNode(&allocated, graph, nullptr, 0, &asked), CUDA_SUCCESS);
    CUDA_MEMSET_NODE_PARAMS fill{};
    fill.dst = asked.dptr;
    fill.value = value;
    fill.elementSize = 4;
    fill.width = 1024;
    fill.height = 1;
    CUgraphNode filled = nullptr;
    EXPECT_EQ(Cu().cuGraphAddMemsetNode(&filled, graph, &allocated, 1, &fill, context_),
              CUDA_SUCCESS);
    *address = asked.dptr;
    return graph;
  };
  CUdeviceptr old_address = 0, address = 0;
  CUgraph first = make(1, &old_address);
  CUgraph second = make(2, &address);
  ASSERT_NE(address, old_address);
  CUgraphExec exec = Instantiate(first);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(Cu().cuGraphExecUpdate_v2(exec, second, &info), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphDestroy(second), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphDestroy(first), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  uint32_t found = 0;
  EXPECT_EQ(Cu().cuMemcpyDtoH_v2(&found, address + 4092, sizeof(found)), CUDA_SUCCESS);
  EXPECT_EQ(found, 2u);
  EXPECT_EQ(Cu().cuMemFree_v2(old_address), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
