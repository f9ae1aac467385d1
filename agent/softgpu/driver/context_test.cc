// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

TEST_F(DriverTest, PrimaryContextIsCountedAndKeepsItsHandle) {
  unsigned flags = 0;
  int active = 0;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_ERROR_INVALID_CONTEXT);
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&first, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 0);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&second, 1), CUDA_SUCCESS);
  EXPECT_EQ(first, second);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
}

TEST_F(DriverTest, ContextsStackPerThread) {
  CUcontext made = nullptr;
  ASSERT_EQ(Cuda().cuCtxCreate_v4(&made, nullptr, CU_CTX_SCHED_SPIN, 1), CUDA_SUCCESS);
  CUcontext current = nullptr;
  ASSERT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, made);
  CUdevice device = -1;
  ASSERT_EQ(Cuda().cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, 1);
  ASSERT_EQ(Cuda().cuCtxGetDevice_v2(&device, context_), CUDA_SUCCESS);
  EXPECT_EQ(device, 0);
  unsigned flags = 0;
  ASSERT_EQ(Cuda().cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_CTX_SCHED_SPIN);
  std::thread([&] {
    CUcontext other = made;
    EXPECT_EQ(Cuda().cuCtxGetCurrent(&other), CUDA_SUCCESS);
    EXPECT_EQ(other, nullptr);
    EXPECT_EQ(Cuda().cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
  }).join();
  ASSERT_EQ(Cuda().cuCtxPopCurrent_v2(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, made);
  ASSERT_EQ(Cuda().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  EXPECT_EQ(Cuda().cuCtxDestroy_v2(made), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxDestroy_v2(made), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cuda().cuCtxPushCurrent_v2(made), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(DriverTest, ResetFreesWhatTheContextHeld) {
  const size_t before = FreeBytes();
  const CUdeviceptr pointer = Allocate(64 << 20);
  EXPECT_LT(FreeBytes(), before);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, WhoRetainsThePrimaryContextFindsItAlive) {
  // Another thread's release ends the context, and has to wait for its work.
  std::atomic<bool> retained{false};
  std::atomic<bool> go{false};
  std::thread other([&] {
    CUcontext context = nullptr;
    CUstream stream = nullptr;
    ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuCtxSetCurrent(context), CUDA_SUCCESS);
    ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    const auto work = [](void* may) {
      while (!static_cast<std::atomic<bool>*>(may)->load()) std::this_thread::yield();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    };
    ASSERT_EQ(Cuda().cuLaunchHostFunc(stream, work, &go), CUDA_SUCCESS);
    retained = true;
    ASSERT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
  });
  const auto is_active = [] {
    unsigned flags = 0;
    int active = 0;
    EXPECT_EQ(Cuda().cuDevicePrimaryCtxGetState(1, &flags, &active), CUDA_SUCCESS);
    return active != 0;
  };
  while (!retained) std::this_thread::yield();
  while (is_active()) std::this_thread::yield();
  go = true;
  CUcontext context = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSetCurrent(context), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&pointer, 512), CUDA_SUCCESS);
  other.join();
  EXPECT_TRUE(is_active());
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(1), CUDA_SUCCESS);
}

// Yielding at once, two threads would hardly ever be at the same place together.
void AwaitRound(const std::atomic<int>& at, int round) {
  for (int spins = 0; at.load() < round; ++spins) {
    if (spins > 100000) std::this_thread::yield();
  }
}

// After `prepare` both at once, one of them a little later, by ever another time; then `check`.
template <class Prepare, class First, class Second, class Check>
void InParallel(int rounds, const Prepare& prepare, const First& first, const Second& second,
                const Check& check) {
  std::atomic<int> prepared{0};
  std::atomic<int> begun{0};
  std::atomic<int> done{0};
  std::thread other([&] {
    for (int round = 1; round <= rounds; ++round) {
      AwaitRound(prepared, round);
      begun = round;
      second();
      done = round;
    }
  });
  for (int round = 1; round <= rounds; ++round) {
    prepare();
    prepared = round;
    AwaitRound(begun, round);
    for (std::atomic<int> left{round % 64}; left.load() > 0;) --left;
    first();
    AwaitRound(done, round);
    check();
  }
  other.join();
}

TEST_F(DriverTest, OfTwoThatDestroyAContextOneDoes) {
  CUcontext made = nullptr;
  CUresult first = CUDA_SUCCESS;
  CUresult second = CUDA_SUCCESS;
  InParallel(
      1000,
      [&] {
        EXPECT_EQ(Cuda().cuCtxCreate_v4(&made, nullptr, 0, 1), CUDA_SUCCESS);
        EXPECT_EQ(Cuda().cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
      },
      [&] { first = Cuda().cuCtxDestroy_v2(made); }, [&] { second = Cuda().cuCtxDestroy_v2(made); },
      [&] {
        EXPECT_NE(first == CUDA_SUCCESS, second == CUDA_SUCCESS);
        EXPECT_EQ(first == CUDA_SUCCESS ? second : first, CUDA_ERROR_INVALID_CONTEXT);
      });
}

TEST_F(DriverTest, AGreenContextReleasesThePrimaryOneOnce) {
  CUgreenCtx green = nullptr;
  InParallel(
      500, [&] { green = MakeGreen(); },
      [&] { static_cast<void>(Cuda().cuGreenCtxDestroy(green)); },
      [] { EXPECT_EQ(Cuda().cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS); },
      [] {
        // This test has retained it.
        unsigned flags = 0;
        int active = 0;
        EXPECT_EQ(Cuda().cuDevicePrimaryCtxGetState(0, &flags, &active), CUDA_SUCCESS);
        EXPECT_EQ(active, 1);
      });
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(0), CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
}

TEST_F(DriverTest, LimitsAreKept) {
  size_t value = 0;
  ASSERT_EQ(Cuda().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(value, 4096u);
  ASSERT_EQ(Cuda().cuCtxGetLimit(&value, CU_LIMIT_CIG_ENABLED), CUDA_SUCCESS);
  EXPECT_EQ(value, 0u);
  EXPECT_EQ(Cuda().cuCtxSetLimit(CU_LIMIT_CIG_ENABLED, 1), CUDA_ERROR_UNSUPPORTED_LIMIT);
}

}  // namespace
}  // namespace gpuloom::softgpu
