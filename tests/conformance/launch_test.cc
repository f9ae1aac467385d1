// SPDX-License-Identifier: Apache-2.0
// Launches: parameters by both ways, dimensions, dynamic shared memory, and wrong launches.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using Kernels = WithKernels;

TEST_F(Kernels, VectorAdd) {
  constexpr unsigned kCount = 1000;
  std::vector<float> a(kCount), b(kCount);
  for (unsigned i = 0; i < kCount; ++i) {
    a[i] = 0.25f * static_cast<float>(i);
    b[i] = 1000.0f - static_cast<float>(i);
  }
  const CUdeviceptr device_a = Alloc(kCount * 4), device_b = Alloc(kCount * 4);
  const CUdeviceptr out = Alloc(kCount * 4);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device_a, a.data(), kCount * 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device_b, b.data(), kCount * 4), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("add"), 8, 128, nullptr, device_a, device_b, out, kCount),
            CUDA_SUCCESS);
  const std::vector<float> sum = Download<float>(out, kCount);
  for (unsigned i = 0; i < kCount; ++i) ASSERT_EQ(sum[i], a[i] + b[i]) << i;
}

struct Scattered {
  uint64_t small, wide, medium;
  uint32_t record[5];
  uint32_t unused;
  double real;
};

TEST_F(Kernels, ParametersOfEverySize) {
  const CUdeviceptr out = Alloc(sizeof(Scattered));
  ASSERT_EQ(Cu().cuMemsetD8_v2(out, 0, sizeof(Scattered)), CUDA_SUCCESS);
  uint8_t small = 0xab;
  uint64_t wide = 0x123456789abcdef0;
  uint16_t medium = 0xcdef;
  uint32_t record[5] = {1, 2, 3, 4, 0xffffffff};
  double real = -0.5;
  CUdeviceptr address = out;
  void* parameters[] = {&small, &wide, &medium, record, &real, &address};
  ASSERT_EQ(
      Cu().cuLaunchKernel(Function("scatter"), 1, 1, 1, 1, 1, 1, 0, nullptr, parameters, nullptr),
      CUDA_SUCCESS);
  // The caller's memory is its own again at once.
  small = 0;
  wide = medium = 0;
  std::memset(record, 0, sizeof(record));
  const Scattered seen = Download<Scattered>(out, 1)[0];
  EXPECT_EQ(seen.small, 0xabu);
  EXPECT_EQ(seen.wide, 0x123456789abcdef0u);
  EXPECT_EQ(seen.medium, 0xcdefu);
  EXPECT_EQ(seen.record[0], 1u);
  EXPECT_EQ(seen.record[4], 0xffffffffu);
  EXPECT_EQ(seen.real, -0.5);
}

TEST_F(Kernels, ParametersInOneBuffer) {
  constexpr unsigned kCount = 100;
  const CUdeviceptr out = Alloc(kCount * 4);
  struct {
    CUdeviceptr out;
    uint32_t value;
    uint32_t count;
  } buffer{out, 77, kCount};
  size_t size = sizeof(buffer);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(
      Cu().cuLaunchKernel(Function("fill"), 1, 1, 1, kCount, 1, 1, 0, nullptr, nullptr, extra),
      CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, kCount), std::vector<uint32_t>(kCount, 77));
}

TEST_F(Kernels, LaunchKernelEx) {
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  CUlaunchConfig config{};
  config.gridDimX = 2;
  config.gridDimY = config.gridDimZ = 3;
  config.blockDimX = config.blockDimY = 4;
  config.blockDimZ = 2;
  CUdeviceptr address = counter;
  void* parameters[] = {&address};
  ASSERT_EQ(Cu().cuLaunchKernelEx(&config, Function("increment"), parameters, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 2u * 3 * 3 * 4 * 4 * 2);
}

TEST_F(Kernels, DynamicSharedMemory) {
  CUfunction reverse = Function("reverse");
  for (const unsigned threads : {1u, 32u, 100u, 1024u}) {
    std::vector<uint32_t> values = Pattern(threads, 5);
    CUdeviceptr address = Alloc(threads * 4);
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(address, values.data(), threads * 4), CUDA_SUCCESS);
    void* parameters[] = {&address};
    ASSERT_EQ(Cu().cuLaunchKernel(reverse, 1, 1, 1, threads, 1, 1, threads * 4, nullptr, parameters,
                                  nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(address, threads),
              std::vector<uint32_t>(values.rbegin(), values.rend()));
  }
}

TEST_F(Kernels, ManyLaunchesKeepTheirOrder) {
  constexpr unsigned kLaunches = 3000;
  const CUdeviceptr journal = Alloc((kLaunches + 1) * 4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(journal, 0, 1), CUDA_SUCCESS);
  CUfunction append = Function("append");
  for (unsigned i = 0; i < kLaunches; ++i) {
    ASSERT_EQ(Launch(append, 1, 1, nullptr, journal, i), CUDA_SUCCESS);
  }
  const std::vector<uint32_t> seen = Download<uint32_t>(journal, kLaunches + 1);
  ASSERT_EQ(seen[0], kLaunches);
  for (unsigned i = 0; i < kLaunches; ++i) ASSERT_EQ(seen[i + 1], i);
}

TEST_F(Kernels, WrongLaunches) {
  CUfunction function = Function("increment");
  CUdeviceptr counter = Alloc(4);
  void* parameters[] = {&counter};
  const auto launch = [&](CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                          unsigned by, unsigned bz, unsigned shared) {
    return Cu().cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, nullptr, parameters, nullptr);
  };
  EXPECT_EQ(launch(function, 0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 1, 0, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 1, 1025, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 1, 32, 64, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 1, 1, 1, 65, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 65536, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 65536, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 0x80000000u, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(function, 1, 1, 1, 1, 1, 1, 64 << 10), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(nullptr, 1, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_HANDLE);
  // A wrong launch breaks nothing and runs nothing.
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(launch(function, 1, 1, 1, 1, 1, 1, 0), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 1u);
}

}  // namespace
}  // namespace gpuloom::conformance
