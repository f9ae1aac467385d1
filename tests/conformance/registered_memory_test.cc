// The program's own memory, registered. Whether the device reaches it is the driver's to say. The
// codes of wrong calls are those of driver 580 on an H200.
#include <sys/mman.h>

#include <cstring>

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

TEST_F(RegisteredMemory, TheDeviceReachesItOrNobodySaysSo) {
  ASSERT_EQ(Register(pages_, kSize, CU_MEMHOSTREGISTER_DEVICEMAP), CUDA_SUCCESS);
  CUdeviceptr device = 0;
  if (Cu().cuMemHostGetDevicePointer_v2(&device, pages_ + 8, 0) == CUDA_SUCCESS) {
    ASSERT_EQ(Launch(Function("fill"), 1, 128, nullptr, device, 3u, 100u), CUDA_SUCCESS);
    ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(*reinterpret_cast<uint32_t*>(pages_ + 8), 3u);
  } else {
    int same = 1;
    ASSERT_EQ(Cu().cuDeviceGetAttribute(
                  &same, CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, device_),
              CUDA_SUCCESS);
    EXPECT_EQ(same, 0);
  }
  unsigned type = 0;
  const auto inside = reinterpret_cast<CUdeviceptr>(pages_ + 100);
  ASSERT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CUDA_SUCCESS);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_HOST});
  ASSERT_EQ(Cu().cuMemHostUnregister(pages_), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, inside),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuMemHostGetDevicePointer_v2(&device, pages_, 0), CUDA_ERROR_INVALID_VALUE);
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
