// SPDX-License-Identifier: Apache-2.0
// Large memory of allocation nodes: what a program sees of it, and graphs that together need more than there is.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

struct Turn {
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  CUdeviceptr memory = 0;
};

class GraphMemory : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    ASSERT_EQ(Cu().cuDeviceGraphMemTrim(device_), CUDA_SUCCESS);
    stream_ = Stream();
  }
  void TearDown() override {
    for (const Turn& turn : turns_) End(turn);
    EXPECT_EQ(Cu().cuDeviceGraphMemTrim(device_), CUDA_SUCCESS);
    WithKernels::TearDown();
  }
  static void End(const Turn& turn) {
    EXPECT_EQ(Cu().cuGraphExecDestroy(turn.exec), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphDestroy(turn.graph), CUDA_SUCCESS);
  }

  // Allocates, fills with `value`, and copies what is then at the memory's begin and end to `results`; frees, if wanted.
  Turn Make(size_t bytes, uint32_t value, CUdeviceptr results, bool frees = true) {
    Turn turn;
    CUstream const stream = stream_;
    EXPECT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemAllocAsync(&turn.memory, bytes, stream), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemsetD32Async(turn.memory, value, kMiB / 4, stream), CUDA_SUCCESS);
    const CUdeviceptr end = turn.memory + bytes - 4;
    EXPECT_EQ(Cu().cuMemsetD32Async(end, value + 1, 1, stream), CUDA_SUCCESS);
    EXPECT_EQ(Launch(Function("spin"), 1, 1, stream, uint64_t{200'000}), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemcpyDtoDAsync_v2(results, turn.memory, 4, stream), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemcpyDtoDAsync_v2(results + 4, end, 4, stream), CUDA_SUCCESS);
    if (frees) {
      EXPECT_EQ(Cu().cuMemFreeAsync(turn.memory, stream), CUDA_SUCCESS);
    }
    EXPECT_EQ(Cu().cuStreamEndCapture(stream, &turn.graph), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuGraphInstantiateWithFlags(&turn.exec, turn.graph, 0), CUDA_SUCCESS);
    return turn;
  }
  uint64_t Attribute(CUgraphMem_attribute attribute) {
    cuuint64_t bytes = 0;
    EXPECT_EQ(Cu().cuDeviceGetGraphMemAttribute(device_, attribute, &bytes), CUDA_SUCCESS);
    return bytes;
  }

  CUstream stream_ = nullptr;
  std::vector<Turn> turns_;
};

// More than the device has, or this tenant of it, where that is not much.
TEST_F(GraphMemory, IsEnoughForGraphsThatTakeTurns) {
  constexpr uint32_t kGraphs = 12;
  size_t free_bytes = 0, device_bytes = 0;
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&free_bytes, &device_bytes), CUDA_SUCCESS);
  const size_t largest = device_bytes <= 4096 * kMiB ? device_bytes / 5 / kMiB * kMiB : 64 * kMiB;
  const CUdeviceptr results = Alloc(kGraphs * 8);
  for (uint32_t i = 0; i < kGraphs; ++i) {
    const size_t bytes = largest - i % 3 * 6 * kMiB;
    turns_.push_back(Make(bytes, 100 * i, results + i * 8));
    ASSERT_NE(turns_.back().exec, nullptr);
  }
  const CUstream streams[] = {Stream(), Stream()};
  // In one stream, each in a stream of its own, and all in the other one than before.
  for (const uint32_t round : {0u, 1u, 2u, 3u}) {
    SCOPED_TRACE(round);
    ASSERT_EQ(Cu().cuMemsetD32_v2(results, 7, kGraphs * 2), CUDA_SUCCESS);
    for (uint32_t i = 0; i < kGraphs; ++i) {
      ASSERT_EQ(Cu().cuGraphLaunch(turns_[i].exec, streams[round == 0 ? 0 : (i + round) % 2]),
                CUDA_SUCCESS);
    }
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    const std::vector<uint32_t> found = Download<uint32_t>(results, kGraphs * 2);
    for (uint32_t i = 0; i < kGraphs; ++i) {
      EXPECT_EQ(found[i * 2], 100 * i);
      EXPECT_EQ(found[i * 2 + 1], 100 * i + 1);
    }
  }
  const uint64_t reserved_bytes = Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT);
  EXPECT_LE(reserved_bytes, device_bytes);
  EXPECT_GE(reserved_bytes, largest);
  EXPECT_EQ(Attribute(CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT), reserved_bytes);
  EXPECT_GE(Attribute(CU_GRAPH_MEM_ATTR_USED_MEM_HIGH), reserved_bytes);
  for (const Turn& turn : turns_) End(turn);
  turns_.clear();
  ASSERT_EQ(Cu().cuDeviceGraphMemTrim(device_), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT), 0u);
}

TEST_F(GraphMemory, LeftByALaunchIsTheProgramsUntilItFreesIt) {
  constexpr size_t kBytes = 10 * kMiB;
  const CUdeviceptr results = Alloc(16);
  turns_ = {Make(kBytes, 5, results, false), Make(kBytes, 9, results + 8)};
  const CUdeviceptr left = turns_[0].memory;
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuGraphLaunch(turns_[0].exec, stream), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(Cu().cuGraphLaunch(turns_[1].exec, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(left, kMiB / 4), std::vector<uint32_t>(kMiB / 4, 5));
  EXPECT_EQ(Download<uint32_t>(left + kBytes - 4, 1), std::vector<uint32_t>{6});
  // One allocation, and no mapping of the program's.
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  ASSERT_EQ(Cu().cuMemGetAddressRange_v2(&begin, &bytes, left + kBytes / 2), CUDA_SUCCESS);
  EXPECT_EQ(begin, left);
  EXPECT_EQ(bytes, kBytes);
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cu().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void*>(left)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemUnmap(left, kBytes), CUDA_ERROR_INVALID_VALUE);
  CUipcMemHandle shared = {};
  EXPECT_NE(Cu().cuIpcGetMemHandle(&shared, left), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphLaunch(turns_[0].exec, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFree_v2(left), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(left), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuGraphLaunch(turns_[0].exec, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(left, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(GraphMemory, BeyondTheDevicesIsRefusedAtItsNode) {
  CUgraph graph = nullptr;
  ASSERT_EQ(Cu().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
  CUDA_MEM_ALLOC_NODE_PARAMS asked = AllocationOf(size_t{1} << 42);
  CUgraphNode node = nullptr;
  EXPECT_EQ(Cu().cuGraphAddMemAllocNode(&node, graph, nullptr, 0, &asked),
            CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
