// SPDX-License-Identifier: Apache-2.0
// Host memory that the device reaches: one address on both sides.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using HostMemory = WithKernels;

TEST_F(HostMemory, SameAddressOnBothSides) {
  auto* host = static_cast<uint32_t*>(HostAlloc(1 << 20));
  CUdeviceptr device = 0;
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, host, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  constexpr uint32_t kCount = 10'000;
  ASSERT_EQ(Launch(Function("fill"), (kCount + 127) / 128, 128, nullptr, device, 99u, kCount),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  for (uint32_t i = 0; i < kCount; ++i) ASSERT_EQ(host[i], 99u) << i;
  EXPECT_EQ(host[kCount], 0u);
}

TEST_F(HostMemory, PlainAllocation) {
  void* host = nullptr;
  ASSERT_EQ(Cu().cuMemAllocHost_v2(&host, 5000), CUDA_SUCCESS);
  std::memset(host, 1, 5000);
  unsigned flags = 99;
  EXPECT_EQ(Cu().cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST_F(HostMemory, FlagsAreKept) {
  void* host = HostAlloc(4096, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  unsigned flags = 0;
  ASSERT_EQ(Cu().cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
  EXPECT_EQ(flags & CU_MEMHOSTALLOC_PORTABLE, unsigned{CU_MEMHOSTALLOC_PORTABLE});
  void* none = nullptr;
  EXPECT_EQ(Cu().cuMemHostAlloc(&none, 4096, 0x1000), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostAlloc(nullptr, 4096, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostMemory, WrongFrees) {
  int local = 0;
  EXPECT_EQ(Cu().cuMemFreeHost(&local), CUDA_ERROR_INVALID_VALUE);
  void* host = nullptr;
  ASSERT_EQ(Cu().cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(HostMemory, IsKnownAsHostMemory) {
  void* host = HostAlloc(4096);
  const auto address = reinterpret_cast<CUdeviceptr>(host) + 8;
  unsigned type = 0;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_HOST));
  void* host_pointer = nullptr;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&host_pointer, CU_POINTER_ATTRIBUTE_HOST_POINTER, address),
            CUDA_SUCCESS);
  EXPECT_EQ(reinterpret_cast<CUdeviceptr>(host_pointer), address);
}

TEST_F(HostMemory, MemsetReachesIt) {
  auto* host = static_cast<uint8_t*>(HostAlloc(4096));
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  ASSERT_EQ(Cu().cuMemsetD8_v2(address + 1, 0x5a, 100), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(host[0], 0);
  EXPECT_EQ(host[1], 0x5a);
  EXPECT_EQ(host[100], 0x5a);
  EXPECT_EQ(host[101], 0);
}

TEST_F(HostMemory, AllocateAndFreeManyTimes) {
  for (int i = 0; i < 200; ++i) {
    void* host = nullptr;
    ASSERT_EQ(Cu().cuMemHostAlloc(&host, (i % 5 + 1) * 700'000, 0), CUDA_SUCCESS) << i;
    std::memset(host, i, 700'000);
    ASSERT_EQ(Cu().cuMemFreeHost(host), CUDA_SUCCESS);
  }
}

}  // namespace
}  // namespace gpuloom::conformance
