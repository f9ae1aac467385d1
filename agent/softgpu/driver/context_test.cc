// SPDX-License-Identifier: Apache-2.0
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
