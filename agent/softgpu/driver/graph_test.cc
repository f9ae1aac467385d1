// SPDX-License-Identifier: Apache-2.0
// Executable graphs of the software driver: order, concurrency, what runs together with streams.
// The API's own rules are tested by the conformance tests.
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

// Opens when so many are inside.
class Meeting {
 public:
  explicit Meeting(int expected) : expected_(expected) {}
  static void Enter(void* meeting) { static_cast<Meeting*>(meeting)->Wait(); }

 private:
  void Wait() {
    std::unique_lock lock(mutex_);
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return inside_ >= expected_; });
  }
  const int expected_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_ = 0;
};

struct Order {
  std::atomic<int>* counter;
  int place = -1;
  static void Take(void* order) {
    auto* self = static_cast<Order*>(order);
    self->place = self->counter->fetch_add(1);
  }
};

class GraphTest : public DriverTest {
 protected:
  void SetUp() override {
    DriverTest::SetUp();
    ASSERT_EQ(Cuda().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (exec_ != nullptr) {
      EXPECT_EQ(Cuda().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
    }
    EXPECT_EQ(Cuda().cuGraphDestroy(graph_), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuStreamDestroy_v2(stream_), CUDA_SUCCESS);
    DriverTest::TearDown();
  }

  CUgraphNode AddHost(CUhostFn function, void* data, const std::vector<CUgraphNode>& after = {}) {
    const CUDA_HOST_NODE_PARAMS params = {function, data};
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cuda().cuGraphAddHostNode(&node, graph_, after.data(), after.size(), &params),
              CUDA_SUCCESS);
    return node;
  }
  CUdeviceptr AddAllocation(size_t bytes) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {};
    params.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.poolProps.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
    params.bytesize = bytes;
    CUgraphNode node = nullptr;
    EXPECT_EQ(Cuda().cuGraphAddMemAllocNode(&node, graph_, nullptr, 0, &params), CUDA_SUCCESS);
    return params.dptr;
  }
  CUgraphNode AddFill(CUdeviceptr address, unsigned value, size_t count,
                      const std::vector<CUgraphNode>& after = {}) {
    const CUDA_MEMSET_NODE_PARAMS params = {address, 0, value, 4, count, 1};
    CUgraphNode node = nullptr;
    EXPECT_EQ(
        Cuda().cuGraphAddMemsetNode(&node, graph_, after.data(), after.size(), &params, context_),
        CUDA_SUCCESS);
    return node;
  }
  CUgraphNode AddCopyToHost(void* to, CUdeviceptr from, size_t bytes,
                            const std::vector<CUgraphNode>& after = {}) {
    CUDA_MEMCPY3D params = {};
    params.srcMemoryType = CU_MEMORYTYPE_DEVICE;
    params.srcDevice = from;
    params.dstMemoryType = CU_MEMORYTYPE_HOST;
    params.dstHost = to;
    params.WidthInBytes = bytes;
    params.Height = params.Depth = 1;
    CUgraphNode node = nullptr;
    EXPECT_EQ(
        Cuda().cuGraphAddMemcpyNode(&node, graph_, after.data(), after.size(), &params, context_),
        CUDA_SUCCESS);
    return node;
  }
  // Done when it returns; the stream of the graphs does not wait for the default one.
  void Set(CUdeviceptr address, unsigned value, size_t count) {
    EXPECT_EQ(Cuda().cuMemsetD32_v2(address, value, count), CUDA_SUCCESS);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  }
  void Instantiate() {
    ASSERT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  void LaunchAndWait() {
    ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }

  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
  CUstream stream_ = nullptr;
};

TEST_F(GraphTest, BranchesRunOnOneThreadWhereThereAreNoMore) {
  std::atomic<int> counter{0};
  Order orders[4] = {{&counter}, {&counter}, {&counter}, {&counter}};
  for (Order& order : orders) AddHost(Order::Take, &order);
  ASSERT_EQ(Cuda().cuGraphInstantiateWithFlags(&exec_, graph_, 0), CUDA_SUCCESS);
  // The stream has its thread before there are no more.
  ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  const WithoutThreads without;
  ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(counter, 8);
}

TEST_F(GraphTest, MemoryOutlivesTheContextThatWasCurrent) {
  constexpr size_t kBytes = 2 << 20;
  const size_t before = FreeBytes();
  CUcontext made = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v4(&made, nullptr, 0, 0), CUDA_SUCCESS);
  const CUdeviceptr of_graph = AddAllocation(kBytes);
  ASSERT_EQ(Cuda().cuCtxDestroy_v2(made), CUDA_SUCCESS);
  EXPECT_EQ(before - FreeBytes(), kBytes);
  // Else the address would be given to others, and freed with the graph.
  void* host = nullptr;
  ASSERT_EQ(Cuda().cuMemHostAlloc(&host, kBytes, 0), CUDA_SUCCESS);
  const CUdeviceptr of_program = Allocate(kBytes);
  EXPECT_NE(of_program, of_graph);
  EXPECT_NE(reinterpret_cast<CUdeviceptr>(host), of_graph);
  ASSERT_EQ(Cuda().cuGraphDestroy(graph_), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphCreate(&graph_, 0), CUDA_SUCCESS);
  EXPECT_EQ(before - FreeBytes(), kBytes);
  EXPECT_EQ(Cuda().cuMemFree_v2(of_program), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(GraphTest, StepsRunInOrder) {
  std::atomic<int> counter{0};
  std::vector<Order> orders(8, Order{&counter});
  std::vector<CUgraphNode> before;
  for (Order& order : orders) before = {AddHost(Order::Take, &order, before)};
  Instantiate();
  LaunchAndWait();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(orders[static_cast<size_t>(i)].place, i);
  LaunchAndWait();
  EXPECT_EQ(orders[7].place, 15);
}

TEST_F(GraphTest, BranchesRunSideBySide) {
  Meeting meeting(3);
  std::atomic<int> counter{0};
  Order last{&counter};
  Order first{&counter};
  const CUgraphNode root = AddHost(Order::Take, &first);
  std::vector<CUgraphNode> branches;
  for (int i = 0; i < 3; ++i) branches.push_back(AddHost(Meeting::Enter, &meeting, {root}));
  AddHost(Order::Take, &last, branches);
  Instantiate();
  LaunchAndWait();
  EXPECT_EQ(first.place, 0);
  EXPECT_EQ(last.place, 1);
}

TEST_F(GraphTest, RunsOfOneGraphDoNotOverlap) {
  CUstream other = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  struct Overlap {
    std::atomic<int> inside{0};
    std::atomic<bool> seen{false};
    static void Run(void* data) {
      auto* self = static_cast<Overlap*>(data);
      if (self->inside.fetch_add(1) != 0) self->seen = true;
      for (int i = 0; i < 1000; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
      self->inside.fetch_sub(1);
    }
  } overlap;
  AddHost(Overlap::Run, &overlap);
  Instantiate();
  for (int i = 0; i < 50; ++i) {
    ASSERT_EQ(Cuda().cuGraphLaunch(exec_, i % 2 == 0 ? stream_ : other), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(other), CUDA_SUCCESS);
  EXPECT_FALSE(overlap.seen);
  EXPECT_EQ(Cuda().cuStreamDestroy_v2(other), CUDA_SUCCESS);
}

TEST_F(GraphTest, UpdatesAreForLaterLaunches) {
  const CUdeviceptr memory = Allocate(64);
  uint32_t result = 0;
  Meeting meeting(2);
  const CUgraphNode gate = AddHost(Meeting::Enter, &meeting);
  const CUgraphNode fill = AddFill(memory, 1, 1, {gate});
  AddCopyToHost(&result, memory, 4, {fill});
  Instantiate();
  ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  const CUDA_MEMSET_NODE_PARAMS changed = {memory, 0, 2, 4, 1, 1};
  ASSERT_EQ(Cuda().cuGraphExecMemsetNodeSetParams(exec_, fill, &changed, context_), CUDA_SUCCESS);
  Meeting::Enter(&meeting);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(result, 1u);
  LaunchAndWait();
  EXPECT_EQ(result, 2u);
  ASSERT_EQ(Cuda().cuGraphNodeSetEnabled(exec_, fill, 0), CUDA_SUCCESS);
  Set(memory, 9, 1);
  LaunchAndWait();
  EXPECT_EQ(result, 9u);
}

TEST_F(GraphTest, ADestroyedGraphStillRuns) {
  const CUdeviceptr memory = Allocate(64);
  Set(memory, 0, 1);
  Meeting meeting(2);
  AddFill(memory, 7, 1, {AddHost(Meeting::Enter, &meeting)});
  Instantiate();
  ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphExecDestroy(exec_), CUDA_SUCCESS);
  exec_ = nullptr;
  Meeting::Enter(&meeting);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  uint32_t result = 0;
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&result, memory, 4), CUDA_SUCCESS);
  EXPECT_EQ(result, 7u);
}

TEST_F(GraphTest, EventsAreRecordedAndWaitedFor) {
  CUevent event = nullptr;
  ASSERT_EQ(Cuda().cuEventCreate(&event, CU_EVENT_DEFAULT), CUDA_SUCCESS);
  Meeting meeting(2);
  CUgraphNode record = nullptr;
  const CUgraphNode gate = AddHost(Meeting::Enter, &meeting);
  ASSERT_EQ(Cuda().cuGraphAddEventRecordNode(&record, graph_, &gate, 1, event), CUDA_SUCCESS);
  Instantiate();
  ASSERT_EQ(Cuda().cuGraphLaunch(exec_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventQuery(event), CUDA_ERROR_NOT_READY);
  Meeting::Enter(&meeting);
  EXPECT_EQ(Cuda().cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuEventDestroy_v2(event), CUDA_SUCCESS);
}

TEST_F(GraphTest, MemoryOperationsWaitInsideTheGraph) {
  const CUdeviceptr memory = Allocate(64);
  Set(memory, 0, 16);
  CUstreamBatchMemOpParams wait = {};
  wait.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  wait.waitValue.address = memory;
  wait.waitValue.value = 5;
  wait.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS batch = {context_, 1, &wait, 0};
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cuda().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &batch), CUDA_SUCCESS);
  AddFill(memory + 4, 6, 1, {node});
  // A branch that lets the other one go.
  CUstreamBatchMemOpParams write = {};
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = memory;
  write.writeValue.value = 5;
  const CUDA_BATCH_MEM_OP_NODE_PARAMS other = {context_, 1, &write, 0};
  ASSERT_EQ(Cuda().cuGraphAddBatchMemOpNode(&node, graph_, nullptr, 0, &other), CUDA_SUCCESS);
  Instantiate();
  LaunchAndWait();
  uint32_t result = 0;
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&result, memory + 4, 4), CUDA_SUCCESS);
  EXPECT_EQ(result, 6u);
}

// The driver accepts it, and then can neither run nor destroy the graph.
TEST_F(GraphTest, NoGraphIsMovedIntoItself) {
  const auto move = [](CUgraph parent, CUgraph child) {
    CUgraphNodeParams params = {};
    params.type = CU_GRAPH_NODE_TYPE_GRAPH;
    params.graph.graph = child;
    params.graph.ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;
    CUgraphNode node = nullptr;
    return Cuda().cuGraphAddNode_v2(&node, parent, nullptr, nullptr, 0, &params);
  };
  CUgraph child = nullptr;
  CUgraph grandchild = nullptr;
  ASSERT_EQ(Cuda().cuGraphCreate(&child, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuGraphCreate(&grandchild, 0), CUDA_SUCCESS);
  EXPECT_EQ(move(graph_, graph_), CUDA_ERROR_NOT_SUPPORTED);
  ASSERT_EQ(move(graph_, child), CUDA_SUCCESS);
  ASSERT_EQ(move(child, grandchild), CUDA_SUCCESS);
  EXPECT_EQ(move(child, graph_), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(move(grandchild, graph_), CUDA_ERROR_NOT_SUPPORTED);
  // A copy of it may lie there.
  CUgraphNode node = nullptr;
  ASSERT_EQ(Cuda().cuGraphAddChildGraphNode(&node, grandchild, nullptr, 0, graph_), CUDA_SUCCESS);
  Instantiate();
  LaunchAndWait();
}

}  // namespace
}  // namespace gpuloom::softgpu
