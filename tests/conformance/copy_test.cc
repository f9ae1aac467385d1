// SPDX-License-Identifier: Apache-2.0
// All one-dimensional copies and memsets, synchronous and asynchronous, over sizes around every
// limit that an implementation may have, from pageable and pinned memory.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class Copy : public WithKernels, public testing::WithParamInterface<size_t> {
 protected:
  size_t words() const { return GetParam(); }
  size_t bytes() const { return GetParam() * 4; }
};

TEST_P(Copy, PageableThereAndBack) {
  const std::vector<uint32_t> source = Pattern(words(), 1);
  const CUdeviceptr device = Alloc(bytes());
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, source.data(), bytes()), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device, words()), source);
}

TEST_P(Copy, PageableAsynchronous) {
  std::vector<uint32_t> source = Pattern(words(), 2);
  const std::vector<uint32_t> expected = source;
  std::vector<uint32_t> back(words());
  const CUdeviceptr device = Alloc(bytes());
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(device, source.data(), bytes(), stream), CUDA_SUCCESS);
  // Pageable memory has been read when the call returns.
  std::memset(source.data(), 0, bytes());
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(back.data(), device, bytes(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(back, expected);
}

TEST_P(Copy, PinnedAsynchronous) {
  auto* host = static_cast<uint32_t*>(HostAlloc(2 * bytes()));
  const std::vector<uint32_t> source = Pattern(words(), 3);
  std::memcpy(host, source.data(), bytes());
  const CUdeviceptr first = Alloc(bytes()), second = Alloc(bytes());
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(first, host, bytes(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoDAsync_v2(second, first, bytes(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(host + words(), second, bytes(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(host + words(), source.data(), bytes()), 0);
}

// cuMemcpy finds out the direction from the addresses.
TEST_P(Copy, UnifiedAddresses) {
  const std::vector<uint32_t> source = Pattern(words(), 4);
  std::vector<uint32_t> back(words());
  const CUdeviceptr first = Alloc(bytes()), second = Alloc(bytes());
  const auto address = [](const void* p) { return reinterpret_cast<CUdeviceptr>(p); };
  ASSERT_EQ(Cu().cuMemcpy(first, address(source.data()), bytes()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpy(second, first, bytes()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpy(address(back.data()), second, bytes()), CUDA_SUCCESS);
  EXPECT_EQ(back, source);
  std::vector<uint32_t> between(words());
  ASSERT_EQ(Cu().cuMemcpy(address(between.data()), address(back.data()), bytes()), CUDA_SUCCESS);
  EXPECT_EQ(between, source);
  // A blocking stream: the memset before it is asynchronous, in the legacy default stream.
  CUstream stream = Stream(CU_STREAM_DEFAULT);
  ASSERT_EQ(Cu().cuMemsetD8_v2(first, 0, bytes()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(nullptr), CUDA_SUCCESS);  // memsets do not wait
  ASSERT_EQ(Cu().cuMemcpyAsync(first, second, bytes(), stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(first, words()), source);
}

TEST_P(Copy, OddOffsets) {
  const size_t whole = bytes() + 8;
  std::vector<uint8_t> expected(whole, 0xee);
  const CUdeviceptr device = Alloc(whole);
  ASSERT_EQ(Cu().cuMemsetD8_v2(device, 0xee, whole), CUDA_SUCCESS);
  const std::vector<uint32_t> source = Pattern(words(), 6);
  const auto* from = reinterpret_cast<const uint8_t*>(source.data()) + 1;
  const size_t inner = bytes() - 1;
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device + 3, from, inner), CUDA_SUCCESS);
  std::memcpy(expected.data() + 3, from, inner);
  EXPECT_EQ(Download<uint8_t>(device, whole), expected);
}

// A copy waits for the kernel before it, and the kernel after it sees it.
TEST_P(Copy, OrderedWithKernels) {
  const CUdeviceptr device = Alloc(bytes());
  const auto count = static_cast<uint32_t>(words());
  const unsigned blocks = (count + 255) / 256;
  CUfunction fill = Function("fill");
  ASSERT_EQ(Launch(fill, blocks, 256, nullptr, device, 11u, count), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device, words()), std::vector<uint32_t>(words(), 11));
  const std::vector<uint32_t> source = Pattern(words(), 7);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, source.data(), bytes()), CUDA_SUCCESS);
  ASSERT_EQ(Launch(fill, 1, 1, nullptr, device, 12u, 1u), CUDA_SUCCESS);
  std::vector<uint32_t> expected = source;
  expected[0] = 12;
  EXPECT_EQ(Download<uint32_t>(device, words()), expected);
}

INSTANTIATE_TEST_SUITE_P(Words, Copy,
                         testing::Values(1, 2, 250, 1024, 1025, 4096, 16'384, 16'385, 32'768,
                                         65'537, 100'001, 262'144, 786'433, 1'048'577, 2'500'000));

using LargeCopy = WithContext;

// Into one piece of memory, each thread its part, over and over.
TEST_F(LargeCopy, ThreadsCopyAtOnce) {
  constexpr size_t kWords = 500'003, kThreads = 4;
  const CUdeviceptr device = Alloc(kThreads * kWords * 4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_EQ(Cu().cuCtxSetCurrent(context_), CUDA_SUCCESS);
      const CUdeviceptr part = device + i * kWords * 4;
      CUstream stream = nullptr;
      ASSERT_EQ(Cu().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
      for (uint32_t round = 0; round < 5; ++round) {
        const auto seed = static_cast<uint32_t>(10 * i + round);
        std::vector<uint32_t> source = Pattern(kWords, seed);
        std::vector<uint32_t> back(kWords);
        EXPECT_EQ(Cu().cuMemcpyHtoDAsync_v2(part, source.data(), kWords * 4, stream), CUDA_SUCCESS);
        std::memset(source.data(), 0, kWords * 4);
        EXPECT_EQ(Cu().cuMemcpyDtoHAsync_v2(back.data(), part, kWords * 4, stream), CUDA_SUCCESS);
        EXPECT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
        EXPECT_EQ(back, Pattern(kWords, seed));
      }
      EXPECT_EQ(Cu().cuStreamDestroy_v2(stream), CUDA_SUCCESS);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Memory that no page stands behind yet, and memory from a file that is mapped for reading.
TEST_F(LargeCopy, FreshAndReadOnlyMemory) {
  constexpr size_t kBytes = 9u << 20;
  const CUdeviceptr device = Alloc(kBytes);
  const auto map = [](int protection) {
    void* memory = mmap(nullptr, kBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    EXPECT_NE(memory, MAP_FAILED);
    return static_cast<uint8_t*>(memory);
  };
  uint8_t* zeroes = map(PROT_READ);
  uint8_t* fresh = map(PROT_READ | PROT_WRITE);
  ASSERT_EQ(Cu().cuMemsetD8_v2(device, 0x5a, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoH_v2(fresh, device, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(std::count(fresh, fresh + kBytes, 0x5a), static_cast<ptrdiff_t>(kBytes));
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, zeroes, kBytes), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoH_v2(fresh, device, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(std::count(fresh, fresh + kBytes, 0), static_cast<ptrdiff_t>(kBytes));
  munmap(zeroes, kBytes);
  munmap(fresh, kBytes);
}

// A copy back is done when the call returns, also behind a kernel and before another.
TEST_F(LargeCopy, BackBetweenMemsets) {
  constexpr size_t kBytes = 3u << 20;
  const CUdeviceptr device = Alloc(kBytes);
  CUstream stream = Stream();
  for (int round = 0; round < 10; ++round) {
    std::vector<uint8_t> back(kBytes);
    const auto byte = static_cast<uint8_t>(round + 1);
    ASSERT_EQ(Cu().cuMemsetD8Async(device, byte, kBytes, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(back.data(), device, kBytes, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemsetD8Async(device, 0xff, kBytes, stream), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
    EXPECT_EQ(std::count(back.begin(), back.end(), byte), static_cast<ptrdiff_t>(kBytes));
  }
}

// A synchronous copy reads pageable memory when its turn in the stream has come.
TEST_F(LargeCopy, ReadsWhatAFunctionBeforeItWrites) {
  for (const size_t bytes : {size_t{16}, size_t{40'000}, size_t{3} << 20}) {
    std::vector<uint8_t> source(bytes, 1);
    const CUdeviceptr device = Alloc(bytes);
    const auto write = [](void* vector) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      auto& bytes = *static_cast<std::vector<uint8_t>*>(vector);
      std::fill(bytes.begin(), bytes.end(), uint8_t{2});
    };
    ASSERT_EQ(Cu().cuLaunchHostFunc(nullptr, write, &source), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, source.data(), bytes), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint8_t>(device, bytes), std::vector<uint8_t>(bytes, 2));
  }
}

using Memset = WithContext;

TEST_F(Memset, EveryWidth) {
  constexpr size_t kBytes = 1024;
  const CUdeviceptr device = Alloc(kBytes);
  ASSERT_EQ(Cu().cuMemsetD8_v2(device, 0xa5, kBytes), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device, kBytes), std::vector<uint8_t>(kBytes, 0xa5));
  ASSERT_EQ(Cu().cuMemsetD16_v2(device + 2, 0x1234, 100), CUDA_SUCCESS);
  std::vector<uint16_t> halves(kBytes / 2, 0xa5a5);
  for (int i = 1; i <= 100; ++i) halves[i] = 0x1234;
  EXPECT_EQ(Download<uint16_t>(device, kBytes / 2), halves);
  CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemsetD32Async(device, 0xdeadbeef, kBytes / 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD16Async(device, 0x7777, 2, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD8Async(device, 0x11, 1, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::vector<uint32_t> words(kBytes / 4, 0xdeadbeef);
  words[0] = 0x77777711;
  EXPECT_EQ(Download<uint32_t>(device, kBytes / 4), words);
  EXPECT_EQ(Cu().cuMemsetD32_v2(device, 5, 0), CUDA_SUCCESS);
}

TEST_F(Memset, WrongMemsets) {
  const CUdeviceptr device = Alloc(64);
  EXPECT_EQ(Cu().cuMemsetD16_v2(device + 1, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemsetD32_v2(device + 2, 0, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemsetD8_v2(0x1000, 0, 1), CUDA_ERROR_INVALID_VALUE);
}

using WrongCopy = WithContext;

TEST_F(WrongCopy, AddressesThatNobodyOwns) {
  uint32_t word = 0;
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(0x1000, &word, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemcpyDtoH_v2(&word, 0x1000, 4), CUDA_ERROR_INVALID_VALUE);
  const CUdeviceptr device = Alloc(64);
  EXPECT_EQ(Cu().cuMemcpyDtoD_v2(device, 0x1000, 4), CUDA_ERROR_INVALID_VALUE);
  // Empty copies are no error.
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(device, &word, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemcpyDtoH_v2(&word, device, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemcpyHtoD_v2(device, &word, 4), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
