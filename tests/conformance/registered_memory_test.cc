// SPDX-License-Identifier: Apache-2.0
// The program's own memory, registered. Its device address may be another than the program's. The
// codes of wrong calls are those of driver 580 on an H200.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr size_t kSize = size_t{1} << 20;

class RegisteredMemory : public WithKernels {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithKernels::SetUp());
    void* pages = mmap(nullptr, kSize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(pages, MAP_FAILED);
    pages_ = static_cast<uint8_t*>(pages);
    std::memset(pages_, 1, kSize);
  }
  void TearDown() override {
    WithKernels::TearDown();
    munmap(pages_, kSize);
  }
  CUresult Register(void* begin, size_t size, unsigned flags = 0) {
    return Cu().cuMemHostRegister_v2(begin, size, flags);
  }
  uint8_t* pages_ = nullptr;
};

TEST_F(RegisteredMemory, CopiesInBothDirections) {
  int supported = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&supported, CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, device_),
      CUDA_SUCCESS);
  EXPECT_EQ(supported, 1);
  ASSERT_EQ(Register(pages_, kSize, CU_MEMHOSTREGISTER_PORTABLE), CUDA_SUCCESS);
  const CUdeviceptr device = Alloc(kSize);
  const CUstream stream = Stream();
  const auto words = Pattern(kSize / 4, 8);
  std::memcpy(pages_, words.data(), kSize);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(device, pages_, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  std::memset(pages_, 0, kSize);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, device, kSize, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(pages_, words.data(), kSize), 0) << "the contents stay";
}

TEST_F(RegisteredMemory, KernelsReachItByItsDeviceAddress) {
  for (size_t i = 0; i < kSize; ++i) pages_[i] = static_cast<uint8_t>(i * 7);
  const size_t offset = 100, size = 600'000;
  ASSERT_EQ(Register(pages_ + offset, size, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + offset, 0), CUDA_SUCCESS);
  CUdeviceptr inside = 0;
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&inside, pages_ + offset + 5000, 0), CUDA_SUCCESS);
  EXPECT_EQ(inside, device + 5000);
  for (size_t i = 0; i < kSize; ++i) ASSERT_EQ(pages_[i], static_cast<uint8_t>(i * 7)) << i;

  const uint32_t count = 100'000;
  ASSERT_EQ(Launch(Function("fill"), (count + 127) / 128, 128, nullptr, device, 3u, count),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const auto word = [this](size_t at) {
    uint32_t value;
    std::memcpy(&value, pages_ + at, sizeof(value));
    return value;
  };
  EXPECT_EQ(word(offset), 3u);
  EXPECT_EQ(word(offset + 4 * (count - 1)), 3u);
  EXPECT_EQ(pages_[offset - 1], static_cast<uint8_t>((offset - 1) * 7));
  EXPECT_EQ(pages_[offset + 4 * count], static_cast<uint8_t>((offset + 4 * count) * 7));

  // The program writes, a kernel reads; copies take either address.
  const uint32_t value = 41;
  std::memcpy(pages_ + offset + 8, &value, sizeof(value));
  ASSERT_EQ(Launch(Function("increment"), 1, 1, nullptr, device + 8), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device + 8, 1)[0], 42u);
  const CUdeviceptr memory = Alloc(size);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(memory, pages_ + offset, size), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, 3)[2], 42u);
  ASSERT_EQ(Cu().cuMemsetD32_v2(memory, 8, 16), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoD_v2(device + 64, memory, 64), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(word(offset + 64 + 60), 8u);

  unsigned type = 0;
  CUdeviceptr told = 0;
  const auto host = reinterpret_cast<CUdeviceptr>(pages_ + offset);
  EXPECT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, host),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  EXPECT_EQ(Cu().cuPointerGetAttribute(&told, CU_POINTER_ATTRIBUTE_DEVICE_POINTER, host),
            CUDA_SUCCESS);
  EXPECT_EQ(told, device);

  // What the device is still to write is there when unregistering returns, and stays.
  ASSERT_EQ(Launch(Function("increment"), 1, 1, Stream(), device + 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_ + offset), CUDA_SUCCESS);
  EXPECT_EQ(word(offset + 8), 43u);
  EXPECT_EQ(word(offset + 4 * (count - 1)), 3u);
  EXPECT_EQ(pages_[kSize - 1], static_cast<uint8_t>((kSize - 1) * 7));
  pages_[offset] = 9;
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + offset, 0),
            CUDA_ERROR_INVALID_VALUE);
  // And again.
  ASSERT_EQ(Register(pages_, kSize), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(device + offset, 1)[0], 9);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

// By the program's address, behind a kernel that is still to write by the device's.
TEST_F(RegisteredMemory, CopiesFromItComeInTheirTurn) {
  std::memset(pages_, 0, kSize);
  ASSERT_EQ(Register(pages_, kSize, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_SUCCESS);
  const CUdeviceptr memory = Alloc(kSize);
  const CUstream stream = Stream();
  constexpr uint32_t kCount = 1000;
  Block(stream);
  ASSERT_EQ(Launch(Function("fill"), 16, 64, stream, device, 5u, kCount), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, pages_, kCount * 4, stream), CUDA_SUCCESS);
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = CU_MEMORYTYPE_HOST;
  rows.srcHost = pages_;
  rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.dstDevice = memory + kCount * 4;
  rows.srcPitch = 400;
  rows.dstPitch = rows.WidthInBytes = 200;
  rows.Height = 10;
  ASSERT_EQ(Cu().cuMemcpy2DAsync_v2(&rows, stream), CUDA_SUCCESS);
  // And to it, before one that reads.
  ASSERT_EQ(Cu().cuMemsetD32Async(memory + 8192, 7, kCount, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyDtoHAsync_v2(pages_, memory + 8192, kCount * 4, stream), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("increment"), 1, 1, stream, device + 40), CUDA_SUCCESS);
  Open();
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(memory, kCount), std::vector<uint32_t>(kCount, 5));
  EXPECT_EQ(Download<uint32_t>(memory + kCount * 4, 500), std::vector<uint32_t>(500, 5));
  const auto* words = reinterpret_cast<const uint32_t*>(pages_);
  EXPECT_EQ(words[9], 7u);
  EXPECT_EQ(words[10], 8u);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

// Behind a function of the program's that is still to write.
TEST_F(RegisteredMemory, CopiesFromItSeeWhatHostFunctionsWrite) {
  std::memset(pages_, 0, kSize);
  ASSERT_EQ(Register(pages_, kSize), CUDA_SUCCESS);
  const CUdeviceptr memory = Alloc(kSize);
  const CUstream stream = Stream();
  struct Writing {
    uint8_t* pages;
    std::atomic<bool> queued{false};
  } writing{pages_};
  // Not before the copy has been queued, but where that waits for this.
  const CUhostFn write = [](void* data) {
    auto* what = static_cast<Writing*>(data);
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
    while (!what->queued && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    std::memset(what->pages, 9, kSize);
  };
  ASSERT_EQ(Cu().cuLaunchHostFunc(stream, write, &writing), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(memory, pages_, kSize, stream), CUDA_SUCCESS);
  writing.queued = true;
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint8_t>(memory, kSize), std::vector<uint8_t>(kSize, 9));
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

TEST_F(RegisteredMemory, AChildOfForkHasItsOwn) {
  ASSERT_EQ(Register(pages_, kSize, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  ASSERT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_SUCCESS);
  pages_[5000] = 5;
  const pid_t child = fork();
  if (child == 0) {
    const bool there = pages_[5000] == 5 && pages_[kSize - 1] == 1;
    std::memset(pages_, 77, kSize);
    _exit(there ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(pages_[5000], 5);
  EXPECT_EQ(pages_[0], 1);
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(pages_[5000], 5);
}

TEST_F(RegisteredMemory, IsNoMoreWhenItIsUnregistered) {
  ASSERT_EQ(Register(pages_, kSize), CUDA_SUCCESS);
  unsigned type = 0;
  const auto inside = reinterpret_cast<CUdeviceptr>(pages_ + 100);
  ASSERT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr device = 0;
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(RegisteredMemory, DeviceAddressesOfWhatIsNotIt) {
  ASSERT_EQ(Register(pages_ + 100, 5000), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + 50, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + 5099, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + 5100, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + 100, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_ + 100), CUDA_SUCCESS);
}

TEST_F(RegisteredMemory, ReadOnlyPagesMustBeCalledSo) {
  int supported = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(
                &supported, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, device_),
            CUDA_SUCCESS);
  if (supported == 0) GTEST_SKIP() << "the device does not support it";
  const auto words = Pattern(kSize / 4, 12);
  std::memcpy(pages_, words.data(), kSize);
  // All but the last page.
  const size_t size = kSize - 4096;
  ASSERT_EQ(mprotect(pages_, size, PROT_READ), 0);
  EXPECT_EQ(Register(pages_, size), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Register(pages_ + size - 4096, 8192), CUDA_ERROR_INVALID_VALUE) << "one of two pages";
  EXPECT_EQ(Register(pages_ + size, 4096), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_ + size), CUDA_SUCCESS);
  ASSERT_EQ(Register(pages_, size, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  const CUdeviceptr device = Alloc(kSize);
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuMemcpyHtoDAsync_v2(device, pages_, size, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(device, size / 4),
            std::vector<uint32_t>(words.begin(), words.begin() + size / 4));
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  ASSERT_EQ(mprotect(pages_, size, PROT_READ | PROT_WRITE), 0);
  // Whoever may write may also promise not to.
  EXPECT_EQ(Register(pages_, kSize, CU_MEMHOSTREGISTER_READ_ONLY), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
}

TEST_F(RegisteredMemory, CodeIsReadOnly) {
  void* const code = reinterpret_cast<void*>(&RunChild);
  EXPECT_EQ(Register(code, 4), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(RegisteredMemory, WrongCalls) {
  EXPECT_EQ(Register(nullptr, 100), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Register(pages_, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Register(pages_, 100, 0x40), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Register(HostAlloc(4096), 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostUnregister(HostAlloc(4096)), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostUnregister(nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  ASSERT_EQ(Register(pages_, kSize / 2), CUDA_SUCCESS);
  EXPECT_EQ(Register(pages_, kSize / 2), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(Register(pages_ + 8192, 4096), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_ + 4096), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

}  // namespace
}  // namespace gpuloom::conformance
