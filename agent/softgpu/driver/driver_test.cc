// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {

const Driver& Cuda() {
  static const Driver driver = [] {
    // Before any thread.
    setenv("GPULOOM_SOFTGPU_MEMORY", "1GiB", 1);
    setenv("GPULOOM_SOFTGPU_DEVICES", "2", 1);
    setenv("GPULOOM_SOFTGPU_QUIET", "1", 1);
    Driver loaded;
    std::string error;
    if (!Load(GPULOOM_SOFTGPU_LIBRARY, &loaded, &error)) {
      std::fprintf(stderr, "%s\n", error.c_str());
      std::abort();
    }
    if (loaded.cuInit(0) != CUDA_SUCCESS) std::abort();
    return loaded;
  }();
  return driver;
}

CUmemAllocationProp DeviceMemory(int ordinal) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, ordinal};
  return properties;
}

// By threads whose stacks are larger than the address space.
WithoutThreads::WithoutThreads() {
  pthread_attr_t usual;
  EXPECT_EQ(pthread_getattr_default_np(&usual), 0);
  EXPECT_EQ(pthread_attr_getstacksize(&usual, &stack_bytes_), 0);
  pthread_attr_destroy(&usual);
  SetStack(size_t{1} << 60);
}

WithoutThreads::~WithoutThreads() { SetStack(stack_bytes_); }

void WithoutThreads::SetStack(size_t size_bytes) {
  pthread_attr_t wanted;
  EXPECT_EQ(pthread_getattr_default_np(&wanted), 0);
  EXPECT_EQ(pthread_attr_setstacksize(&wanted, size_bytes), 0);
  EXPECT_EQ(pthread_setattr_default_np(&wanted), 0);
  pthread_attr_destroy(&wanted);
}

void DriverTest::SetUp() {
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSetCurrent(context_), CUDA_SUCCESS);
}

void DriverTest::TearDown() {
  EXPECT_EQ(Cuda().cuDevicePrimaryCtxRelease_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
}

CUdeviceptr DriverTest::Allocate(size_t size_bytes) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&pointer, size_bytes), CUDA_SUCCESS);
  return pointer;
}

CUmemGenericAllocationHandle DriverTest::Create(size_t size_bytes) {
  const CUmemAllocationProp properties = DeviceMemory();
  CUmemGenericAllocationHandle handle = 0;
  EXPECT_EQ(Cuda().cuMemCreate(&handle, size_bytes, &properties, 0), CUDA_SUCCESS);
  return handle;
}

void DriverTest::Allow(CUdeviceptr begin, size_t size_bytes, CUmemAccess_flags flags) {
  CUmemAccessDesc access{};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  access.flags = flags;
  EXPECT_EQ(Cuda().cuMemSetAccess(begin, size_bytes, &access, 1), CUDA_SUCCESS);
}

CUgreenCtx DriverTest::MakeGreen() {
  CUdevResource all{};
  CUdevResource part{};
  unsigned groups = 1;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx green = nullptr;
  EXPECT_EQ(Cuda().cuDeviceGetDevResource(0, &all, CU_DEV_RESOURCE_TYPE_SM), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevSmResourceSplitByCount(&part, &groups, &all, nullptr, 0, 2), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDevResourceGenerateDesc(&description, &part, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuGreenCtxCreate(&green, description, 0, CU_GREEN_CTX_DEFAULT_STREAM),
            CUDA_SUCCESS);
  return green;
}

size_t DriverTest::FreeBytes() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  EXPECT_EQ(Cuda().cuMemGetInfo_v2(&free_bytes, &total_bytes), CUDA_SUCCESS);
  EXPECT_EQ(total_bytes, kTestMemoryBytes);
  return free_bytes;
}

}  // namespace gpuloom::softgpu
