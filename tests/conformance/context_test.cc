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

}  // namespace
}  // namespace gpuloom::conformance
