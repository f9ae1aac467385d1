// All one-dimensional copies and memsets, synchronous and asynchronous, over sizes around every
// limit that an implementation may have, from pageable and pinned memory.
#include <cstring>

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
                         testing::Values(1, 2, 250, 4096, 16'384, 16'385, 100'001, 786'433));

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
