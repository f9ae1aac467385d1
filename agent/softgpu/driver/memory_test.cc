// SPDX-License-Identifier: Apache-2.0
#include <malloc.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

TEST_F(DriverTest, MemoryIsCountedToTheStep) {
  const size_t before = FreeBytes();
  const CUdeviceptr pointer = Allocate(1000);
  EXPECT_EQ(before - FreeBytes(), 1024u);
  CUdeviceptr begin = 0;
  size_t bytes = 0;
  ASSERT_EQ(Cuda().cuMemGetAddressRange_v2(&begin, &bytes, pointer + 999), CUDA_SUCCESS);
  EXPECT_EQ(begin, pointer);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer + 256), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(DriverTest, MoreThanThereIsIsRefused) {
  CUdeviceptr pointer = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&pointer, kTestMemoryBytes + 512), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&pointer, ~size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&pointer, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemAlloc_v2(&pointer, kTestMemoryBytes - kGranule), CUDA_SUCCESS);
  CUdeviceptr second = 0;
  EXPECT_EQ(Cuda().cuMemAlloc_v2(&second, kGranule + 1), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
}

TEST_F(DriverTest, CopiesGoThereAndBack) {
  std::vector<int> out(100000);
  for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<int>(i * 7);
  const size_t bytes = out.size() * sizeof(int);
  const CUdeviceptr first = Allocate(bytes);
  const CUdeviceptr second = Allocate(bytes);
  std::vector<int> in(out.size());
  ASSERT_EQ(Cuda().cuMemcpyHtoD_v2(first, out.data(), bytes), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoD_v2(second, first, bytes), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(in.data(), second, bytes), CUDA_SUCCESS);
  EXPECT_EQ(in, out);
  // Through unified addresses, and on the thread's own stream.
  std::vector<int> again(out.size());
  ASSERT_EQ(Cuda().cuMemcpy_ptds(reinterpret_cast<CUdeviceptr>(again.data()), second, bytes),
            CUDA_SUCCESS);
  EXPECT_EQ(again, out);
  EXPECT_EQ(Cuda().cuMemcpyHtoD_v2(first, out.data(), bytes + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(in.data(), 4096, 16), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, CopiesWhoseSizesWrapAreRefused) {
  CUDA_MEMCPY3D good = {};
  std::vector<char> buffer(4096);
  good.srcMemoryType = CU_MEMORYTYPE_HOST;
  good.srcHost = buffer.data();
  good.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  good.dstDevice = Allocate(4096);
  good.WidthInBytes = 128;
  good.Height = good.Depth = 1;
  const auto copy = [](CUDA_MEMCPY3D params) {
    return Cuda().cuMemcpy3DAsync_v2(&params, nullptr);
  };
  ASSERT_EQ(copy(good), CUDA_SUCCESS);
  // Rows of 64 bytes, each 128 bytes wide.
  CUDA_MEMCPY3D wraps = good;
  wraps.srcHost = buffer.data() + 64;
  wraps.dstDevice += 64;
  wraps.srcXInBytes = wraps.dstXInBytes = ~size_t{63};
  wraps.Height = 2;
  EXPECT_EQ(copy(wraps), CUDA_ERROR_INVALID_VALUE);
  // Slices of no bytes: 2^57 rows of 128.
  wraps = good;
  wraps.srcPitch = wraps.dstPitch = 128;
  wraps.srcHeight = wraps.dstHeight = size_t{1} << 57;
  wraps.Depth = 1 << 20;
  EXPECT_EQ(copy(wraps), CUDA_ERROR_INVALID_VALUE);
  // As many rows as end at the first one.
  wraps = good;
  wraps.srcY = wraps.dstY = ~size_t{0};
  wraps.Height = 1;
  wraps.Depth = 1 << 20;
  EXPECT_EQ(copy(wraps), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, SmallPageableCopiesMayReuseTheBufferAtOnce) {
  const CUdeviceptr pointer = Allocate(4096);
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  std::vector<char> buffer(4096, 'a');
  ASSERT_EQ(Cuda().cuMemcpyHtoDAsync_v2(pointer, buffer.data(), 4096, stream), CUDA_SUCCESS);
  std::memset(buffer.data(), 'b', buffer.size());
  std::vector<char> in(4096);
  ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(in.data(), pointer, 4096, stream), CUDA_SUCCESS);
  EXPECT_EQ(in, std::vector<char>(4096, 'a'));
  EXPECT_EQ(Cuda().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
}

TEST_F(DriverTest, MemsetsFillElements) {
  const CUdeviceptr pointer = Allocate(64);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(pointer, 0x11, 64), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD16_v2(pointer + 8, 0x2222, 4), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD32Async(pointer + 16, 0x33333333, 4, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemsetD32_v2(pointer + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemsetD8_v2(pointer, 0, 1024), CUDA_ERROR_INVALID_VALUE);
  unsigned char in[64];
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(in, pointer, 64), CUDA_SUCCESS);
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(in[i], i >= 8 && i < 16 ? 0x22 : i >= 16 && i < 32 ? 0x33 : 0x11) << i;
  }
}

TEST_F(DriverTest, RowsAreCopiedWithTheirPitch) {
  CUdeviceptr pointer = 0;
  size_t pitch = 0;
  ASSERT_EQ(Cuda().cuMemAllocPitch_v2(&pointer, &pitch, 100, 8, 4), CUDA_SUCCESS);
  EXPECT_EQ(pitch, 512u);
  ASSERT_EQ(Cuda().cuMemsetD2D8_v2(pointer, pitch, 0xee, 512, 8), CUDA_SUCCESS);
  unsigned char out[800];
  for (int i = 0; i < 800; ++i) out[i] = static_cast<unsigned char>(i % 100);
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = out;
  copy.srcPitch = 100;
  copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.dstDevice = pointer;
  copy.dstPitch = pitch;
  copy.WidthInBytes = 100;
  copy.Height = 8;
  ASSERT_EQ(Cuda().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  std::vector<unsigned char> in(pitch * 8);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(in.data(), pointer, in.size()), CUDA_SUCCESS);
  for (size_t i = 0; i < in.size(); ++i) {
    const size_t column = i % pitch;
    ASSERT_EQ(in[i], column < 100 ? column : 0xee) << i;
  }
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  EXPECT_EQ(Cuda().cuMemcpy2D_v2(&copy), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, HostMemoryHasOneAddress) {
  void* host = nullptr;
  ASSERT_EQ(Cuda().cuMemHostAlloc(&host, 10000, CU_MEMHOSTALLOC_PORTABLE), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(Cuda().cuMemHostGetDevicePointer_v2(&device, host, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(host));
  unsigned flags = 0;
  ASSERT_EQ(Cuda().cuMemHostGetFlags(&flags, host), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP);
  unsigned type = 0;
  ASSERT_EQ(Cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, device),
            CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_HOST);
  EXPECT_EQ(Cuda().cuMemFreeHost(host), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFreeHost(host), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, RegisteredMemoryIsKnownUntilUnregistered) {
  std::vector<char> buffer(100000);
  void* pointer = buffer.data();
  CUdeviceptr device = 0;
  EXPECT_EQ(Cuda().cuMemHostGetDevicePointer_v2(&device, pointer, 0), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemHostRegister_v2(pointer, buffer.size(), 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemHostRegister_v2(buffer.data() + 100, 100, 0),
            CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(Cuda().cuMemHostGetDevicePointer_v2(&device, pointer, 0), CUDA_SUCCESS);
  EXPECT_EQ(device, reinterpret_cast<CUdeviceptr>(pointer));
  EXPECT_EQ(Cuda().cuMemHostUnregister(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemHostUnregister(pointer), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  EXPECT_EQ(Cuda().cuMemHostRegister_v2(reinterpret_cast<void*>(0x1000), 4096, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, PointersTellWhatTheyAre) {
  const CUdeviceptr pointer = Allocate(4096);
  unsigned type = 0;
  CUcontext owner = nullptr;
  int ordinal = -1;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_CONTEXT,
                                      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  void* data[] = {&type, &owner, &ordinal};
  ASSERT_EQ(Cuda().cuPointerGetAttributes(3, attributes, data, pointer + 8), CUDA_SUCCESS);
  EXPECT_EQ(type, CU_MEMORYTYPE_DEVICE);
  EXPECT_EQ(owner, context_);
  EXPECT_EQ(ordinal, 0);
  int local = 0;
  const auto unknown = reinterpret_cast<CUdeviceptr>(&local);
  EXPECT_EQ(Cuda().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, unknown),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuPointerGetAttributes(3, attributes, data, unknown), CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(owner, nullptr);
}

TEST_F(DriverTest, AdviceGoesWithItsAllocation) {
  const auto use = [](int times) {
    for (int i = 0; i < times; ++i) {
      CUdeviceptr pointer = 0;
      ASSERT_EQ(Cuda().cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
      int read_mostly = -1;
      ASSERT_EQ(Cuda().cuMemRangeGetAttribute(&read_mostly, sizeof(read_mostly),
                                              CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, pointer, 4096),
                CUDA_SUCCESS);
      ASSERT_EQ(read_mostly, 0) << "what was said of an earlier one";
      ASSERT_EQ(Cuda().cuMemAdvise(pointer, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0), CUDA_SUCCESS);
      ASSERT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
    }
  };
  use(100);
  const size_t before = mallinfo2().uordblks;
  use(5000);
  EXPECT_LT(mallinfo2().uordblks, before + (100 << 10));
}

TEST_F(DriverTest, ManagedMemoryIsReachedFromBothSides) {
  CUdeviceptr pointer = 0;
  ASSERT_EQ(Cuda().cuMemAllocManaged(&pointer, 4096, CU_MEM_ATTACH_GLOBAL), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(pointer, 0x5a, 4096), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<const unsigned char*>(pointer + 4095), 0x5a);
  unsigned managed = 0;
  ASSERT_EQ(Cuda().cuPointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, pointer),
            CUDA_SUCCESS);
  EXPECT_EQ(managed, 1u);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::softgpu
