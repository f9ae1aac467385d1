// SPDX-License-Identifier: Apache-2.0
// Memory in stream order and its pools. The codes of wrong calls are those of driver 580 on an H200.
#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr auto kInternalDependencies = CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;

class StreamMemory : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    ASSERT_EQ(Cu().cuDeviceGetDefaultMemPool(&pool_, device_), CUDA_SUCCESS);
  }
  void TearDown() override {
    uint64_t none = 0;
    int wait = 1;
    if (pool_ != nullptr) {
      EXPECT_EQ(Cu().cuMemPoolSetAttribute(pool_, kInternalDependencies, &wait), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &none),
                CUDA_SUCCESS);
    }
    WithKernels::TearDown();
  }
  CUdeviceptr Take(size_t size, CUstream stream) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Cu().cuMemAllocAsync(&address, size, stream), CUDA_SUCCESS);
    EXPECT_NE(address, 0u);
    return address;
  }
  void Give(CUdeviceptr address, CUstream stream) {
    EXPECT_EQ(Cu().cuMemFreeAsync(address, stream), CUDA_SUCCESS);
  }
  uint64_t Attribute(CUmemPool_attribute attribute, CUmemoryPool pool = nullptr) {
    uint64_t value = 0;
    EXPECT_EQ(Cu().cuMemPoolGetAttribute(pool == nullptr ? pool_ : pool, attribute, &value),
              CUDA_SUCCESS);
    return value;
  }
  CUmemoryPool MakePool() {
    CUmemPoolProps properties = {};
    properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
    CUmemoryPool pool = nullptr;
    EXPECT_EQ(Cu().cuMemPoolCreate(&pool, &properties), CUDA_SUCCESS);
    return pool;
  }
  CUmemoryPool pool_ = nullptr;
};

TEST_F(StreamMemory, IsSupported) {
  int supported = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device_),
      CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
  CUmemoryPool current = nullptr;
  ASSERT_EQ(Cu().cuDeviceGetMemPool(&current, device_), CUDA_SUCCESS);
  EXPECT_EQ(current, pool_);
}

TEST_F(StreamMemory, AllocationsAreDisjointAndUsable) {
  for (const CUstream stream : {CUstream{nullptr}, Stream(), Stream(CU_STREAM_DEFAULT)}) {
    std::vector<std::pair<CUdeviceptr, uint32_t>> pieces;
    uint32_t value = 1;
    for (const uint32_t count : {1u, 10u, 1000u, 100'000u, 3'000'000u, 7u}) {
      const CUdeviceptr address = Take(count * 4, stream);
      EXPECT_EQ(address % 256, 0u);
      ASSERT_EQ(Launch(Function("fill"), (count + 127) / 128, 128, stream, address, value++, count),
                CUDA_SUCCESS);
      pieces.emplace_back(address, count);
    }
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    value = 1;
    for (const auto& [address, count] : pieces) {
      EXPECT_EQ(Download<uint32_t>(address, count), std::vector<uint32_t>(count, value++));
      Give(address, stream);
    }
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  }
}

TEST_F(StreamMemory, WhatAStreamFreedIsNotGivenToAnotherWhileInUse) {
  const CUstream busy = Stream();
  const CUstream other = Stream();
  constexpr uint32_t kCount = 100'000;
  const CUfunction fill = Function("fill");  // a driver may load it only now, and wait for all work
  // Nor may the other stream wait for it.
  int wait = 0;
  ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, kInternalDependencies, &wait), CUDA_SUCCESS);
  for (int round = 0; round < 3; ++round) {
    const CUdeviceptr address = Take(kCount * 4, busy);
    const CUdeviceptr seen = Alloc(kCount * 4);
    Block(busy);
    ASSERT_EQ(Launch(fill, (kCount + 127) / 128, 128, busy, address, 1u, kCount), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(seen, address, kCount * 4, busy), CUDA_SUCCESS);
    Give(address, busy);
    // Whatever this gets, it must not be what the blocked stream is going to use.
    const CUdeviceptr fresh = Take(kCount * 4, other);
    ASSERT_EQ(Launch(fill, (kCount + 127) / 128, 128, other, fresh, 2u, kCount), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
    Open();
    ASSERT_EQ(Cu().cuStreamSynchronize(busy), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(seen, kCount), std::vector<uint32_t>(kCount, 1));
    EXPECT_EQ(Download<uint32_t>(fresh, kCount), std::vector<uint32_t>(kCount, 2));
    Give(fresh, other);
    ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
  }
}

TEST_F(StreamMemory, FreedOnABlockingStreamBehindTheLegacyStream) {
  const CUstream blocking = Stream(CU_STREAM_DEFAULT);
  const CUstream other = Stream();
  constexpr uint32_t kCount = 50'000;
  const CUdeviceptr seen = Alloc(kCount * 4);
  const CUdeviceptr address = Take(kCount * 4, blocking);
  ASSERT_EQ(Cu().cuStreamSynchronize(blocking), CUDA_SUCCESS);
  // What comes behind code that is loaded later waits for what runs.
  const CUfunction fill = Function("fill");
  Block(nullptr);
  ASSERT_EQ(Launch(fill, (kCount + 127) / 128, 128, nullptr, address, 1u, kCount), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(seen, address, kCount * 4, nullptr), CUDA_SUCCESS);
  Give(address, blocking);  // behind the legacy stream's work, though nothing was queued here
  const CUdeviceptr fresh = Take(kCount * 4, other);
  ASSERT_EQ(Launch(fill, (kCount + 127) / 128, 128, other, fresh, 2u, kCount), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
  Open();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(seen, kCount), std::vector<uint32_t>(kCount, 1));
  Give(fresh, other);
  ASSERT_EQ(Cu().cuStreamSynchronize(other), CUDA_SUCCESS);
}

TEST_F(StreamMemory, AStreamReusesWhatItFreedAtOnce) {
  const CUstream stream = Stream();
  uint64_t keep = ~uint64_t{0};
  ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
            CUDA_SUCCESS);
  Block(stream);
  const CUdeviceptr first = Take(3 * kMiB, stream);
  Give(first, stream);
  const uint64_t reserved = Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
  for (int i = 0; i < 200; ++i) {
    const CUdeviceptr address = Take(3 * kMiB, stream);
    Give(address, stream);
  }
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), reserved);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(StreamMemory, AttributesTellTheTruth) {
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  uint64_t none = 0;
  for (const auto high : {CU_MEMPOOL_ATTR_USED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH}) {
    ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, high, &none), CUDA_SUCCESS);
    EXPECT_EQ(Attribute(high), 0u);
  }
  const CUdeviceptr a = Take(1000, stream);
  const CUdeviceptr b = Take(10 * kMiB, stream);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000 + 10 * kMiB);
  EXPECT_GE(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * kMiB);
  Give(a, stream);
  Give(b, stream);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000 + 10 * kMiB);
  // With a threshold of nothing it goes when the program synchronises.
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
  EXPECT_GE(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 10 * kMiB);

  int follow = 7;
  ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &follow),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &follow),
            CUDA_SUCCESS);
  EXPECT_EQ(follow, 1);
}

TEST_F(StreamMemory, AThresholdKeepsMemory) {
  const CUstream stream = Stream();
  uint64_t keep = 64 * kMiB;
  ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
            CUDA_SUCCESS);
  Give(Take(10 * kMiB, stream), stream);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_GE(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 10 * kMiB);
  ASSERT_EQ(Cu().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
}

TEST_F(StreamMemory, FreeMemoryComesBack) {
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_TRUE(FreeAgainAfter(10 * kMiB, [&] {
    size_t during = 0;
    for (int i = 0; i < 5; ++i) {
      const CUdeviceptr address = Take(20 * kMiB, stream);
      EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
      during = FreeBytes();
      Give(address, stream);
      EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    }
    return during;
  }));
}

TEST_F(StreamMemory, WhatATrimGivesBackIsFreeAtOnce) {
  const CUstream stream = Stream();
  uint64_t keep = ~uint64_t{0};
  ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
  EXPECT_TRUE(FreeAgainAfter(100 * kMiB, [&] {
    const CUdeviceptr address = Take(200 * kMiB, stream);
    EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    const size_t during = FreeBytes();
    Give(address, stream);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
    return during;
  }));
}

// Pieces of a pool that keeps what it has fill the memory; then something larger is wanted.
class FullPool : public StreamMemory {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(StreamMemory::SetUp());
    uint64_t keep = ~uint64_t{0};
    ASSERT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep),
              CUDA_SUCCESS);
    stream_ = Stream();
    piece_ = FreeBytes() / 10 / (2 * kMiB) * (2 * kMiB);
    ASSERT_NE(piece_, 0u);
    std::vector<CUdeviceptr> pieces;
    for (int i = 0; i < 8; ++i) {
      pieces.push_back(Take(piece_, stream_));
      ASSERT_EQ(Cu().cuMemsetD8Async(pieces.back(), 7, 1000, stream_), CUDA_SUCCESS);
    }
    for (const CUdeviceptr one : pieces) Give(one, stream_);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (pool_ != nullptr) {
      EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
      EXPECT_EQ(Cu().cuMemPoolTrimTo(pool_, 0), CUDA_SUCCESS);
    }
    StreamMemory::TearDown();
  }
  CUstream stream_ = nullptr;
  size_t piece_ = 0;
};

TEST_F(FullPool, GivesItselfWhatItNeeds) {
  const CUdeviceptr ordered = Take(6 * piece_, stream_);
  const CUdeviceptr last = ordered + 6 * piece_ - 1000;
  EXPECT_EQ(Cu().cuMemsetD8Async(last, 9, 1000, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(last, 1000), std::vector<uint8_t>(1000, 9));
  Give(ordered, stream_);
}

TEST_F(FullPool, GivesBackWhatAnAllocationNeeds) {
  CUdeviceptr plain = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&plain, 6 * piece_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(plain), CUDA_SUCCESS);
}

TEST_F(FullPool, GivesBackWhatAGraphNeeds) {
  CUdeviceptr captured = 0;
  CUgraph graph = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(Cu().cuStreamBeginCapture_v2(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemAllocAsync(&captured, 6 * piece_, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemsetD8Async(captured + 6 * piece_ - 1000, 9, 1000, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(captured, stream_), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamEndCapture(stream_, &graph), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuGraphInstantiateWithFlags(&exec, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphLaunch(exec, stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuGraphDestroy(graph), CUDA_SUCCESS);
}

TEST_F(StreamMemory, OtherWaysToFree) {
  const CUstream stream = Stream();
  // cuMemFree of a pool's memory, cuMemFreeAsync of cuMemAlloc's.
  const CUdeviceptr pooled = Take(5000, stream);
  EXPECT_EQ(Cu().cuMemFree_v2(pooled), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(pooled), CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr plain = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&plain, 3 * kMiB), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8Async(plain, 1, 3 * kMiB, stream), CUDA_SUCCESS);
  // Not a second time: NVIDIA's driver takes that for good, and the stream hangs.
  EXPECT_EQ(Cu().cuMemFreeAsync(plain, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(StreamMemory, PoolsOfTheProgram) {
  const CUstream stream = Stream();
  CUmemoryPool pool = MakePool();
  ASSERT_NE(pool, nullptr);
  CUdeviceptr address = 0;
  ASSERT_EQ(Cu().cuMemAllocFromPoolAsync(&address, 1000, pool, stream), CUDA_SUCCESS);
  CUmemoryPool of = nullptr;
  ASSERT_EQ(Cu().cuPointerGetAttribute(&of, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address + 10),
            CUDA_SUCCESS);
  EXPECT_EQ(of, pool);
  size_t size = 0;
  ASSERT_EQ(Cu().cuMemGetAddressRange_v2(nullptr, &size, address + 10), CUDA_SUCCESS);
  EXPECT_EQ(size, 1000u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool), 1000u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  ASSERT_EQ(Cu().cuDeviceSetMemPool(device_, pool), CUDA_SUCCESS);
  const CUdeviceptr second = Take(500, stream);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, pool), 1500u);
  // What was allocated lives on; the pool goes with it.
  ASSERT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool), CUDA_ERROR_INVALID_VALUE);
  CUmemoryPool current = nullptr;
  ASSERT_EQ(Cu().cuDeviceGetMemPool(&current, device_), CUDA_SUCCESS);
  EXPECT_EQ(current, pool_);
  EXPECT_EQ(Cu().cuMemsetD8Async(address, 3, 1000, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(address, 1000), std::vector<uint8_t>(1000, 3));
  Give(address, stream);
  Give(second, stream);
  EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
}

TEST_F(StreamMemory, WrongAllocationsAndFrees) {
  const CUstream stream = Stream();
  CUdeviceptr address = 5;
  EXPECT_EQ(Cu().cuMemAllocAsync(nullptr, 1000, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemAllocAsync(&address, 0, stream), CUDA_SUCCESS);
  EXPECT_EQ(address, 0u);
  EXPECT_EQ(Cu().cuMemAllocAsync(&address, size_t{1} << 45, stream), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Cu().cuMemAllocFromPoolAsync(&address, 100, nullptr, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFreeAsync(0, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(0x1000, stream), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr valid = Take(4096, stream);
  EXPECT_EQ(Cu().cuMemFreeAsync(valid + 512, stream), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemFreeAsync(valid, stream), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFreeAsync(valid, stream), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(StreamMemory, WrongPools) {
  CUmemoryPool none = nullptr;
  EXPECT_EQ(Cu().cuDeviceGetDefaultMemPool(nullptr, device_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuDeviceGetDefaultMemPool(&none, 99), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuDeviceSetMemPool(device_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolDestroy(pool_), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolDestroy(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolTrimTo(nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  CUmemPoolProps right = {};
  right.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  right.location = {CU_MEM_LOCATION_TYPE_DEVICE, device_};
  EXPECT_EQ(Cu().cuMemPoolCreate(nullptr, &right), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolCreate(&none, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUmemPoolProps wrong = right;
  wrong.location.id = 99;
  EXPECT_EQ(Cu().cuMemPoolCreate(&none, &wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
  EXPECT_EQ(Cu().cuMemPoolCreate(&none, &wrong), CUDA_ERROR_INVALID_VALUE);
  wrong = right;
  wrong.handleTypes = CU_MEM_HANDLE_TYPE_WIN32;
  EXPECT_EQ(Cu().cuMemPoolCreate(&none, &wrong), CUDA_ERROR_INVALID_VALUE);

  uint64_t value = 5;
  EXPECT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolSetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolGetAttribute(pool_, static_cast<CUmemPool_attribute>(77), &value),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolGetAttribute(pool_, CU_MEMPOOL_ATTR_USED_MEM_HIGH, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolGetAttribute(nullptr, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value),
            CUDA_ERROR_INVALID_VALUE);

  CUmemAccess_flags flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  CUmemAccessDesc access = {right.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  ASSERT_EQ(Cu().cuMemPoolGetAccess(&flags, pool_, &access.location), CUDA_SUCCESS);
  EXPECT_EQ(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EXPECT_EQ(Cu().cuMemPoolGetAccess(nullptr, pool_, &access.location), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, nullptr, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 0), CUDA_SUCCESS);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_ERROR_INVALID_DEVICE);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READ;
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
  access.location.id = 99;
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_ERROR_NOT_SUPPORTED);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  EXPECT_EQ(Cu().cuMemPoolSetAccess(pool_, &access, 1), CUDA_ERROR_INVALID_DEVICE);
  EXPECT_EQ(Cu().cuMemPoolGetAccess(&flags, pool_, &access.location), CUDA_ERROR_INVALID_VALUE);
}

// Far more than there is, if freeing gave nothing back; sizes that a chunk does not suit.
TEST_F(StreamMemory, ManyAllocationsOnSeveralStreams) {
  const CUstream streams[] = {Stream(), Stream(), Stream(CU_STREAM_DEFAULT)};
  std::vector<std::pair<CUdeviceptr, CUstream>> live;
  uint32_t random = 1;
  for (int i = 0; i < 5000; ++i) {
    random = random * 1664525 + 1013904223;
    if (live.size() > 20 || (random >> 28) < 6) {
      if (live.empty()) continue;
      const size_t victim = (random >> 8) % live.size();
      Give(live[victim].first, live[victim].second);
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    } else {
      const CUstream stream = streams[(random >> 5) % 3];
      const size_t size = 1 + (random >> 7) % (1u << (10 + (random >> 20) % 11));
      live.emplace_back(Take(size, stream), stream);
      ASSERT_EQ(Cu().cuMemsetD8Async(live.back().first, 1, size, stream), CUDA_SUCCESS);
    }
  }
  for (const auto& [address, stream] : live) Give(address, stream);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0u);
  EXPECT_EQ(Attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0u);
}

}  // namespace
}  // namespace gpuloom::conformance
