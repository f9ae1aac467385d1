// SPDX-License-Identifier: Apache-2.0
// Device memory: allocating, freeing, what is left, and what is known about a pointer.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Memory = WithContext;

TEST_F(Memory, AllocationsAreDisjointAndAligned) {
  std::vector<std::pair<CUdeviceptr, size_t>> pieces;
  for (const size_t size : {1u, 4u, 100u, 256u, 4096u, 65536u, 1u << 20, 3u << 20, 2097153u}) {
    const CUdeviceptr address = Alloc(size);
    EXPECT_EQ(address % 256, 0u);
    for (const auto& [other, other_size] : pieces) {
      EXPECT_TRUE(address + size <= other || other + other_size <= address);
    }
    pieces.emplace_back(address, size);
  }
  uint8_t value = 1;
  for (const auto& [address, size] : pieces) {
    EXPECT_EQ(Cu().cuMemsetD8_v2(address, value++, size), CUDA_SUCCESS);
  }
  value = 1;
  for (const auto& [address, size] : pieces) {
    EXPECT_EQ(Download<uint8_t>(address, size), std::vector<uint8_t>(size, value++));
  }
}

TEST_F(Memory, WrongAllocations) {
  CUdeviceptr address = 0;
  EXPECT_EQ(Cu().cuMemAlloc_v2(&address, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAlloc_v2(nullptr, 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAlloc_v2(&address, size_t{1} << 50), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cu().cuMemAlloc_v2(&address, ~size_t{0}), CUDA_ERROR_OUT_OF_MEMORY);
}

TEST_F(Memory, WrongFrees) {
  EXPECT_EQ(Cu().cuMemFree_v2(0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(0x1000), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr address = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&address, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(address + 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Memory, FreeMemoryComesBack) {
  constexpr size_t kSize = 32u << 20;
  EXPECT_TRUE(FreeAgainAfter(kSize / 2, [&] {
    CUdeviceptr address = 0;
    EXPECT_EQ(Cu().cuMemAlloc_v2(&address, kSize), CUDA_SUCCESS);
    const size_t during = FreeBytes();
    EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_SUCCESS);
    return during;
  }));
}

// Until there is no more; then other sizes, out of what was given back.
TEST_F(Memory, OutOfMemoryAndOn) {
  size_t before = 0, after = 0, total = 0;
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&before, &total), CUDA_SUCCESS);
  const size_t piece = before / 9 / (2u << 20) * (2u << 20);
  ASSERT_NE(piece, 0u);
  for (int round = 0; round < 3; ++round) {
    std::vector<CUdeviceptr> pieces;
    CUdeviceptr address = 0;
    CUresult result = CUDA_SUCCESS;
    while (pieces.size() < 20 && (result = Cu().cuMemAlloc_v2(&address, piece)) == CUDA_SUCCESS) {
      pieces.push_back(address);
    }
    EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
    EXPECT_GE(pieces.size(), 8u);
    EXPECT_EQ(Cu().cuMemAlloc_v2(&address, before), CUDA_ERROR_OUT_OF_MEMORY);
    for (const CUdeviceptr one : pieces) EXPECT_EQ(Cu().cuMemFree_v2(one), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemAlloc_v2(&address, piece * 7), CUDA_SUCCESS) << "in one piece";
    EXPECT_EQ(Cu().cuMemsetD8_v2(address + piece * 7 - 100, 5, 100), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_SUCCESS);
  }
  ASSERT_EQ(Cu().cuMemGetInfo_v2(&after, &total), CUDA_SUCCESS);
  // Beside others no more can be said than that no piece is missing.
  EXPECT_GE(CountsOthers() ? after + piece - 1 : after, before);
}

TEST_F(Memory, AllocateAndFreeManyTimes) {
  // More than the address range of a session could hold if freeing did not give addresses back.
  for (int i = 0; i < 2000; ++i) {
    CUdeviceptr address = 0;
    ASSERT_EQ(Cu().cuMemAlloc_v2(&address, (i % 7 + 1) * 300'000), CUDA_SUCCESS) << i;
    ASSERT_EQ(Cu().cuMemFree_v2(address), CUDA_SUCCESS);
  }
}

TEST_F(Memory, AddressRange) {
  const CUdeviceptr address = Alloc(10'000);
  CUdeviceptr base = 0;
  size_t size = 0;
  ASSERT_EQ(Cu().cuMemGetAddressRange_v2(&base, &size, address + 5'000), CUDA_SUCCESS);
  EXPECT_EQ(base, address);
  EXPECT_EQ(size, 10'000u);
  EXPECT_EQ(Cu().cuMemGetAddressRange_v2(&base, &size, 0x1000), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Memory, PointerAttributes) {
  const CUdeviceptr address = Alloc(4096);
  unsigned type = 0;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 100),
            CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  CUdeviceptr begin = 0;
  ASSERT_EQ(
      Cu().cuPointerGetAttribute(&begin, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 100),
      CUDA_SUCCESS);
  EXPECT_EQ(begin, address);
  size_t size = 0;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&size, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address),
            CUDA_SUCCESS);
  EXPECT_EQ(size, 4096u);
  int ordinal = -1;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address),
            CUDA_SUCCESS);
  EXPECT_EQ(ordinal, device_);
  CUcontext context = nullptr;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&context, CU_POINTER_ATTRIBUTE_CONTEXT, address),
            CUDA_SUCCESS);
  EXPECT_EQ(context, context_);

  int local = 0;
  const auto plain = reinterpret_cast<CUdeviceptr>(&local);
  EXPECT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, plain),
            CUDA_ERROR_INVALID_VALUE);
}

// What the CUDA runtime asks for cudaPointerGetAttributes: plain memory is no error there.
TEST_F(Memory, PointerAttributesTogether) {
  unsigned type = 77;
  CUdeviceptr device_pointer = 77;
  CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      CU_POINTER_ATTRIBUTE_DEVICE_POINTER};
  void* data[] = {&type, &device_pointer};
  const CUdeviceptr address = Alloc(64);
  ASSERT_EQ(Cu().cuPointerGetAttributes(2, attributes, data, address), CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(device_pointer, address);
  int local = 0;
  ASSERT_EQ(Cu().cuPointerGetAttributes(2, attributes, data, reinterpret_cast<CUdeviceptr>(&local)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(device_pointer, 0u);
}

TEST_F(Memory, SynchronousMemoryOperations) {
  const CUdeviceptr address = Alloc(4096);
  unsigned on = 1;
  ASSERT_EQ(Cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address + 16),
            CUDA_SUCCESS);
  unsigned told = 7;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
            CUDA_SUCCESS);
  EXPECT_EQ(told & 1, 1u);
  EXPECT_EQ(Cu().cuMemsetD32_v2(address, 5, 16), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamQuery(CU_STREAM_LEGACY), CUDA_SUCCESS) << "a memset that waits";
  on = 0;
  ASSERT_EQ(Cu().cuPointerSetAttribute(&on, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, address),
            CUDA_SUCCESS);
  EXPECT_EQ(told & 1, 0u);
  EXPECT_EQ(Download<uint32_t>(address, 16)[15], 5u);
}

}  // namespace
}  // namespace gpuloom::conformance
