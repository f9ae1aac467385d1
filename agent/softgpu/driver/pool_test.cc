// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <unistd.h>

#include <atomic>

#include "agent/softgpu/testing/built_driver.h"

namespace gpuloom::softgpu {
namespace {

TEST_F(DriverTest, StreamOrderedMemoryIsFreedInStreamOrder) {
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuDeviceGetDefaultMemPool(&pool, 0), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&pointer, 4096, stream), CUDA_SUCCESS);
  CUmemoryPool from = nullptr;
  ASSERT_EQ(Cuda().cuPointerGetAttribute(&from, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, pointer),
            CUDA_SUCCESS);
  EXPECT_EQ(from, pool);
  cuuint64_t used = 0;
  ASSERT_EQ(Cuda().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used),
            CUDA_SUCCESS);
  EXPECT_EQ(used, 4096u);
  ASSERT_EQ(Cuda().cuMemsetD8Async(pointer, 9, 4096, stream), CUDA_SUCCESS);
  unsigned char last = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoHAsync_v2(&last, pointer + 4095, 1, stream), CUDA_SUCCESS);
  EXPECT_EQ(last, 9);
  ASSERT_EQ(Cuda().cuMemFreeAsync(pointer, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemcpyDtoH_v2(&last, pointer, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cuda().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used),
            CUDA_SUCCESS);
  EXPECT_EQ(used, 0u);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(DriverTest, MemoryOfAGreenContextsStreamIsThePrimaryOnes) {
  const size_t before = FreeBytes();
  const CUgreenCtx green = MakeGreen();
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuGreenCtxStreamCreate(&stream, green, CU_STREAM_NON_BLOCKING, 0), CUDA_SUCCESS);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&pointer, 4096, stream), CUDA_SUCCESS);
  CUcontext owner = nullptr;
  ASSERT_EQ(Cuda().cuPointerGetAttribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, pointer),
            CUDA_SUCCESS);
  EXPECT_EQ(owner, context_);
  ASSERT_EQ(Cuda().cuDevicePrimaryCtxReset_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(DriverTest, PoolsOfOnesOwnAreUsedAndDestroyed) {
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceSetMemPool(0, pool), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuDeviceSetMemPool(1, pool), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr pointer = 0;
  ASSERT_EQ(Cuda().cuMemAllocAsync(&pointer, 100, nullptr), CUDA_SUCCESS);
  cuuint64_t high = 0;
  ASSERT_EQ(Cuda().cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &high), CUDA_SUCCESS);
  EXPECT_EQ(high, 100u);
  EXPECT_EQ(Cuda().cuMemFree_v2(pointer), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  CUmemoryPool current = nullptr;
  CUmemoryPool first = nullptr;
  ASSERT_EQ(Cuda().cuDeviceGetMemPool(&current, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuDeviceGetDefaultMemPool(&first, 0), CUDA_SUCCESS);
  EXPECT_EQ(current, first);
}

// Here both ends are one process: what the other does with the memory is seen at once.
TEST_F(DriverTest, PoolsAreSharedByDescriptor) {
  constexpr auto kDescriptor = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = kDescriptor;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.location.id = 0;
  CUmemoryPool pool = nullptr;
  ASSERT_EQ(Cuda().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
  const size_t before = FreeBytes();
  CUdeviceptr first = 0;
  CUdeviceptr second = 0;
  ASSERT_EQ(Cuda().cuMemAllocFromPoolAsync(&first, 5000, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemAllocFromPoolAsync(&second, 70000, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(second, 0x17, 70000), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  int fd = -1;
  CUmemPoolPtrExportData data{};
  ASSERT_EQ(Cuda().cuMemPoolExportToShareableHandle(&fd, pool, kDescriptor, 0), CUDA_SUCCESS);
  EXPECT_NE(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
  ASSERT_EQ(Cuda().cuMemPoolExportPointer(&data, second), CUDA_SUCCESS);
  CUmemoryPool imported = nullptr;
  ASSERT_EQ(Cuda().cuMemPoolImportFromShareableHandle(
                &imported, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), kDescriptor, 0),
            CUDA_SUCCESS);
  close(fd);
  const size_t during = FreeBytes();
  CUdeviceptr other = 0;
  ASSERT_EQ(Cuda().cuMemPoolImportPointer(&other, imported, &data), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), during) << "the memory is its maker's";
  unsigned char last = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&last, other + 69999, 1), CUDA_SUCCESS);
  EXPECT_EQ(last, 0x17);
  ASSERT_EQ(Cuda().cuMemsetD8_v2(other, 0x18, 70000), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&last, second + 69999, 1), CUDA_SUCCESS);
  EXPECT_EQ(last, 0x18);
  CUdeviceptr again = 0;
  ASSERT_EQ(Cuda().cuMemPoolImportPointer(&again, imported, &data), CUDA_SUCCESS);
  EXPECT_EQ(again, other);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(imported), CUDA_ERROR_INVALID_VALUE) << "in use";
  ASSERT_EQ(Cuda().cuMemFreeAsync(other, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemFreeAsync(second, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  // It comes again as zeros.
  ASSERT_EQ(Cuda().cuMemAllocFromPoolAsync(&second, 70000, pool, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&last, second + 69999, 1), CUDA_SUCCESS);
  EXPECT_EQ(last, 0);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(imported), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFree_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuMemFree_v2(second), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
}

TEST_F(DriverTest, StreamsWaitForValuesAndWriteThem) {
  void* host = nullptr;
  ASSERT_EQ(Cuda().cuMemHostAlloc(&host, 4096, 0), CUDA_SUCCESS);
  auto* words = static_cast<std::atomic<uint32_t>*>(host);
  const auto address = reinterpret_cast<CUdeviceptr>(host);
  CUstream stream = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamWaitValue32_v2(stream, address, 5, CU_STREAM_WAIT_VALUE_GEQ),
            CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamWriteValue32_v2(stream, address + 4, 77, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  words[0] = 4;
  EXPECT_EQ(Cuda().cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(words[1], 0u);
  words[0] = 6;
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[1], 77u);

  CUstreamBatchMemOpParams operations[2] = {};
  operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
  operations[0].waitValue.address = address;
  operations[0].waitValue.value64 = uint64_t{77} << 32 | 6;
  operations[0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
  operations[1].writeValue.address = address + 8;
  operations[1].writeValue.value64 = ~uint64_t{0};
  ASSERT_EQ(Cuda().cuStreamBatchMemOp_v2(stream, 2, operations, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(words[2], 0xffffffffu);
  EXPECT_EQ(words[3], 0xffffffffu);
  EXPECT_EQ(Cuda().cuStreamWriteValue32_v2(stream, address + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuStreamWriteValue32_v2(stream, 4096, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuMemFreeHost(host), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::softgpu
