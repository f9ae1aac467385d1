// SPDX-License-Identifier: Apache-2.0
// The primary context and each thread's stack of current contexts.
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Context = WithContext;

TEST_F(Context, PrimaryIsOnePerDevice) {
  CUcontext again = nullptr;
  ASSERT_EQ(Cu().cuDevicePrimaryCtxRetain(&again, device_), CUDA_SUCCESS);
  EXPECT_EQ(again, context_);
  unsigned flags = 99;
  int active = 0;
  ASSERT_EQ(Cu().cuDevicePrimaryCtxGetState(device_, &flags, &active), CUDA_SUCCESS);
  EXPECT_EQ(active, 1);
  EXPECT_EQ(Cu().cuDevicePrimaryCtxRelease_v2(device_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuDevicePrimaryCtxRetain(&again, 1000), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDevicePrimaryCtxRetain(nullptr, device_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Context, StackOfThisThread) {
  CUcontext current = nullptr;
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  ASSERT_EQ(Cu().cuCtxPushCurrent_v2(context_), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(Cu().cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, context_);
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  ASSERT_EQ(Cu().cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, nullptr);
  EXPECT_EQ(Cu().cuCtxPopCurrent_v2(&popped), CUDA_ERROR_INVALID_CONTEXT);
  CUdeviceptr memory;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, 16), CUDA_ERROR_INVALID_CONTEXT);
}

TEST_F(Context, SetCurrentReplacesTheTop) {
  ASSERT_EQ(Cu().cuCtxPushCurrent_v2(context_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  CUcontext current = nullptr;
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);  // what lay under it
}

TEST_F(Context, OtherThreadsBeginWithout) {
  std::thread([this] {
    CUcontext current = context_;
    EXPECT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    EXPECT_EQ(current, nullptr);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_ERROR_INVALID_CONTEXT);
    EXPECT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  }).join();
}

TEST_F(Context, DeviceVersionAndPriorities) {
  CUdevice device = -1;
  EXPECT_EQ(Cu().cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, device_);
  unsigned version = 0;
  EXPECT_EQ(Cu().cuCtxGetApiVersion(context_, &version), CUDA_SUCCESS);
  EXPECT_GE(version, 3010u);
  int least = -100, greatest = 100;
  ASSERT_EQ(Cu().cuCtxGetStreamPriorityRange(&least, &greatest), CUDA_SUCCESS);
  EXPECT_LE(greatest, least);  // a smaller number is a greater priority
  size_t limit = 0;
  EXPECT_EQ(Cu().cuCtxGetLimit(&limit, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_GT(limit, 0u);
  EXPECT_EQ(Cu().cuCtxGetLimit(&limit, static_cast<CUlimit>(100000)), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Context, CreatedOnesAreCurrentAndTheirOwn) {
  CUcontext created = nullptr;
  ASSERT_EQ(Cu().cuCtxCreate_v2(&created, CU_CTX_SCHED_SPIN, device_), CUDA_SUCCESS);
  EXPECT_NE(created, context_);
  CUcontext current = nullptr;
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, created);
  unsigned flags = 0;
  ASSERT_EQ(Cu().cuCtxGetFlags(&flags), CUDA_SUCCESS);
  EXPECT_EQ(flags & CU_CTX_SCHED_MASK, unsigned{CU_CTX_SCHED_SPIN});
  unsigned long long id = 0, primary_id = 0;
  ASSERT_EQ(Cu().cuCtxGetId(created, &id), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxGetId(context_, &primary_id), CUDA_SUCCESS);
  EXPECT_NE(id, primary_id);
  CUdevice device = -1;
  EXPECT_EQ(Cu().cuCtxGetDevice(&device), CUDA_SUCCESS);
  EXPECT_EQ(device, device_);

  // Work in it.
  CUdeviceptr memory = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&memory, 16), CUDA_SUCCESS);
  CUcontext owner = nullptr;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, memory), CUDA_SUCCESS);
  EXPECT_EQ(owner, created);
  CUstream stream = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamGetCtx(stream, &owner), CUDA_SUCCESS);
  EXPECT_EQ(owner, created);
  ASSERT_EQ(Cu().cuMemsetD32Async(memory, 77, 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 4), std::vector<uint32_t>(4, 77));

  // What is left in it goes with it, and what lay under it is current again.
  ASSERT_EQ(Cu().cuCtxDestroy_v2(created), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
  EXPECT_EQ(current, context_);
  uint32_t word = 0;
  EXPECT_EQ(Cu().cuMemcpyDtoH_v2(&word, memory, 4), CUDA_ERROR_INVALID_VALUE);
}

// Freed in stream order it is no longer the context's, and its address may be somebody else's.
TEST_F(Context, MemoryFreedInStreamOrderIsNotFreedAgainWithItsContext) {
  constexpr size_t kBytes = 4096;
  CUcontext created = nullptr;
  ASSERT_EQ(Cu().cuCtxCreate_v2(&created, 0, device_), CUDA_SUCCESS);
  CUstream stream = nullptr;
  ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUdeviceptr memory = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&memory, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemFreeAsync(memory, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  const CUdeviceptr next = Alloc(kBytes);
  ASSERT_EQ(Cu().cuMemsetD8_v2(next, 0x35, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxDestroy_v2(created), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(next, kBytes), std::vector<uint8_t>(kBytes, 0x35));
}

TEST_F(Context, CreatedOnesMoveBetweenThreads) {
  if (IsDriverBelow(12050)) GTEST_SKIP() << "CUDA 12.5 has it first";
  CUcontext created = nullptr;
  ASSERT_EQ(Cu().cuCtxCreate_v4(&created, nullptr, 0, device_), CUDA_SUCCESS);
  CUcontext popped = nullptr;
  ASSERT_EQ(Cu().cuCtxPopCurrent_v2(&popped), CUDA_SUCCESS);
  EXPECT_EQ(popped, created);
  std::thread([&] {
    ASSERT_EQ(Cu().cuCtxPushCurrent_v2(created), CUDA_SUCCESS);
    CUdeviceptr memory = 0;
    EXPECT_EQ(Cu().cuMemAlloc_v2(&memory, 16), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemFree_v2(memory), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxPopCurrent_v2(nullptr), CUDA_SUCCESS);
  }).join();
  EXPECT_EQ(Cu().cuCtxDestroy_v2(created), CUDA_SUCCESS);
}

TEST_F(Context, WrongCreations) {
  CUcontext created = nullptr;
  EXPECT_EQ(Cu().cuCtxCreate_v2(nullptr, 0, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuCtxCreate_v2(&created, 0, 1000), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuCtxCreate_v2(&created, 0x8000, device_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Context, LimitsAreWhatWasSet) {
  size_t value = 0;
  ASSERT_EQ(Cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxGetLimit(&value, CU_LIMIT_STACK_SIZE), CUDA_SUCCESS);
  EXPECT_EQ(value, 4096u);
  EXPECT_EQ(Cu().cuCtxSetLimit(CU_LIMIT_STACK_SIZE, 1024), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuCtxSetLimit(static_cast<CUlimit>(100000), 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
