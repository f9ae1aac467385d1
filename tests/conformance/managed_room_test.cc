// SPDX-License-Identifier: Apache-2.0
// Managed memory that migrates beside a quota.
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

// The word is in memory that would be the device's, were it not for the wait.
TEST_F(WithKernels, GraphsWaitForWordsOfManagedMemory) {
  CUdeviceptr managed = 0;
  ASSERT_EQ(Cu().cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  auto* words = reinterpret_cast<volatile uint32_t*>(managed);
  ASSERT_EQ(Cu().cuMemsetD32_v2(managed, 0, kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  const CUresult waits = Cu().cuStreamWaitValue32_v2(stream, managed, 5, CU_STREAM_WAIT_VALUE_EQ);
  CUgraph graph = nullptr;
  ASSERT_EQ(waits, CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32Async(managed + 64, 7, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamEndCapture(stream, &graph), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  for (uint32_t turn = 1; turn < 3; ++turn) {
    words[0] = 0;
    const CUresult launched = Cu().cuGraphLaunch(exec, stream);
    if (launched == CUDA_ERROR_INVALID_VALUE && getenv("GPULOOM_SOCKET_DIR") == nullptr) {
      GTEST_SKIP() << "graphs of this driver wait for no word of managed memory, as 580's do not";
    }
    ASSERT_EQ(launched, CUDA_SUCCESS);
    words[0] = 1;
    EXPECT_EQ(Cu().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    words[0] = 5;
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(words[16], 7u);
  }
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(managed), CUDA_SUCCESS);
}

// A function that waits for what its program does after touching the memory: the touch may not wait for the stream, also
// where one thread queues the function while another one allocates.
TEST_F(WithKernels, ManagedMemoryIsMadeWhileAFunctionIsQueued) {
  struct Gate {
    std::atomic<bool> open{false};
    std::atomic<bool> given_up{false};
  };
  const CUhostFn wait = [](void* data) {
    auto* gate = static_cast<Gate*>(data);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!gate->open && !gate->given_up) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
      if (std::chrono::steady_clock::now() > until) gate->given_up = true;
    }
  };
  const CUfunction fill = Function("fill");
  const CUstream waiting = Stream(), working = Stream();
  for (uint32_t round = 0; round < 300; ++round) {
    Gate gate;
    std::atomic<int> ready{0};
    std::thread other([&, this] {
      EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      ++ready;
      while (ready != 2) std::this_thread::yield();
      // At another moment of the allocation each time.
      const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round % 50);
      while (std::chrono::steady_clock::now() < until) {
      }
      EXPECT_EQ(Cu().cuLaunchHostFunc(waiting, wait, &gate), CUDA_SUCCESS);
    });
    ++ready;
    while (ready != 2) std::this_thread::yield();
    CUdeviceptr managed = 0;
    EXPECT_EQ(Cu().cuMemAllocManaged(&managed, 4 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
    other.join();
    ASSERT_NE(managed, 0u);
    EXPECT_EQ(Launch(fill, 8, 128, working, managed, round, 1024u), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuStreamSynchronize(working), CUDA_SUCCESS);
    EXPECT_EQ(reinterpret_cast<const volatile uint32_t*>(managed)[1023], round);
    gate.open = true;
    EXPECT_EQ(Cu().cuStreamSynchronize(waiting), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemFree_v2(managed), CUDA_SUCCESS);
    ASSERT_FALSE(gate.given_up) << "the touch has waited for the function, in round " << round;
  }
}

// Through gpuloom, what does not fit beside it sends managed memory home for good, and more of it than fits begins there.
TEST_F(WithKernels, ManagedMemoryLeavesRoomForOther) {
  if (getenv("GPULOOM_SOCKET_DIR") == nullptr)
    GTEST_SKIP() << "about quotas, so through gpuloom only";
  size_t free_bytes = 0, total_bytes = 0;
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  ASSERT_GT(free_bytes, 64 * kMiB);
  CUdeviceptr ballast = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&ballast, free_bytes - 64 * kMiB), CUDA_SUCCESS);
  CUdeviceptr managed[2] = {};
  const auto check = [&](CUdeviceptr memory, size_t size, uint32_t value) {
    const auto* words = reinterpret_cast<const uint32_t*>(memory);
    EXPECT_EQ(words[1], value);
    EXPECT_EQ(words[size / 4 - 1], value);
  };
  ASSERT_EQ(Cu().cuMemAllocManaged(&managed[0], 48 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32_v2(managed[0], 7, 12 * kMiB), CUDA_SUCCESS);
  for (uint32_t turn = 0; turn < 3; ++turn) {
    CUdeviceptr plain = 0;
    ASSERT_EQ(Cu().cuMemAlloc_v2(&plain, 32 * kMiB), CUDA_SUCCESS);
    check(managed[0], 48 * kMiB, 7);
    ASSERT_EQ(Launch(Function("increment"), 1, 1, nullptr, managed[0]), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD32_v2(plain, turn, 8 * kMiB), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<const uint32_t*>(managed[0]), 8 + turn);
    EXPECT_EQ(Cu().cuMemFree_v2(plain), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuMemAllocManaged(&managed[1], 96 * kMiB, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD32_v2(managed[1], 9, 24 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  check(managed[1], 96 * kMiB, 9);
  for (const CUdeviceptr memory : managed) EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(ballast), CUDA_SUCCESS);
  size_t free_again = 0;
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&free_again, &total_bytes), CUDA_SUCCESS);
  // But for what the driver may have taken for itself meanwhile.
  EXPECT_GE(free_again + 4 * kMiB, free_bytes);
}

}  // namespace
}  // namespace gpuloom::conformance
