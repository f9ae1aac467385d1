// SPDX-License-Identifier: Apache-2.0
// Launches of CUDA 3: block, shared memory and parameters are set in the function, then it is
// launched.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

using StepwiseLaunch = WithKernels;

TEST_F(StepwiseLaunch, TakesWhatWasSet) {
  constexpr int kCount = 1000;
  CUdeviceptr out = Alloc(kCount * 4);
  const CUfunction fill = Function("fill");
  const CUstream stream = Stream();
  ASSERT_EQ(Cu().cuFuncSetBlockShape(fill, 128, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuFuncSetSharedSize(fill, 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(fill, 0, &out, sizeof(out)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSeti(fill, 8, 77), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSeti(fill, 12, kCount), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetSize(fill, 16), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunchGrid(fill, 8, 1), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, kCount), std::vector<uint32_t>(kCount, 77));
  // The rest stays as it was set.
  ASSERT_EQ(Cu().cuParamSeti(fill, 8, 78), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunchGridAsync(fill, 4, 2, stream), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(stream), CUDA_SUCCESS);
  const std::vector<uint32_t> seen = Download<uint32_t>(out, kCount);
  // The kernel counts blocks of the first dimension only: four of them.
  EXPECT_EQ(seen[0], 78u);
  EXPECT_EQ(seen[511], 78u);
  EXPECT_EQ(seen[512], 77u);
  // One block of one dimension.
  ASSERT_EQ(Cu().cuParamSeti(fill, 8, 79), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunch(fill), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const std::vector<uint32_t> last = Download<uint32_t>(out, kCount);
  EXPECT_EQ(last[127], 79u);
  EXPECT_EQ(last[128], 78u);
}

TEST_F(StepwiseLaunch, FloatsAndRecords) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "CUDA 12.4 has it first";
  struct Scattered {
    uint64_t small, wide, medium;
    uint32_t record[5];
    uint32_t unused;
    double real;
  };
  CUdeviceptr out = Alloc(sizeof(Scattered));
  ASSERT_EQ(Cu().cuMemsetD8_v2(out, 0, sizeof(Scattered)), CUDA_SUCCESS);
  const CUfunction scatter = Function("scatter");
  size_t offsets[6] = {};
  for (size_t i = 0; i < 6; ++i) {
    ASSERT_EQ(Cu().cuFuncGetParamInfo(scatter, i, &offsets[i], nullptr), CUDA_SUCCESS);
  }
  uint8_t small = 0xab;
  uint64_t wide = 0x123456789abcdef0;
  uint16_t medium = 0xcdef;
  uint32_t record[5] = {1, 2, 3, 4, 5};
  const float half_of_a_double = 1.75f;  // 0x3fe00000
  const auto at = [&](size_t i) { return static_cast<int>(offsets[i]); };
  ASSERT_EQ(Cu().cuParamSetv(scatter, at(0), &small, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(scatter, at(1), &wide, 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(scatter, at(2), &medium, 2), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(scatter, at(3), record, sizeof(record)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSeti(scatter, at(4), 0), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetf(scatter, at(4) + 4, half_of_a_double), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(scatter, at(5), &out, 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetSize(scatter, static_cast<unsigned>(offsets[5] + 8)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuFuncSetBlockShape(scatter, 1, 1, 1), CUDA_SUCCESS);
  // What was set is the function's, not the program's memory any longer.
  wide = record[4] = 0;
  ASSERT_EQ(Cu().cuLaunch(scatter), CUDA_SUCCESS);
  const Scattered seen = Download<Scattered>(out, 1)[0];
  EXPECT_EQ(seen.small, 0xabu);
  EXPECT_EQ(seen.wide, 0x123456789abcdef0u);
  EXPECT_EQ(seen.medium, 0xcdefu);
  EXPECT_EQ(seen.record[4], 5u);
  EXPECT_EQ(seen.real, 0.5);
}

TEST_F(StepwiseLaunch, DynamicSharedMemory) {
  constexpr int kCount = 64;
  CUdeviceptr values = Alloc(kCount * 4);
  std::vector<uint32_t> words = Pattern(kCount, 3);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(values, words.data(), kCount * 4), CUDA_SUCCESS);
  const CUfunction reverse = Function("reverse");
  ASSERT_EQ(Cu().cuFuncSetBlockShape(reverse, kCount, 1, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuFuncSetSharedSize(reverse, kCount * 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetv(reverse, 0, &values, 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSetSize(reverse, 8), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunch(reverse), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(values, kCount),
            std::vector<uint32_t>(words.rbegin(), words.rend()));
}

// One thread, and zeros.
TEST_F(StepwiseLaunch, WhatIsNotSet) {
  CUdeviceptr out = Alloc(8);
  ASSERT_EQ(Cu().cuMemsetD32_v2(out, 5, 2), CUDA_SUCCESS);
  const CUfunction fill = Function("fill");  // out, value, count
  ASSERT_EQ(Cu().cuParamSetv(fill, 0, &out, sizeof(out)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSeti(fill, 8, 77), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuParamSeti(fill, 12, 2), CUDA_SUCCESS);
  // Behind the size nothing counts: no value is to be filled in.
  ASSERT_EQ(Cu().cuParamSetSize(fill, 12), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunch(fill), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 2), (std::vector<uint32_t>{5, 5}));
  ASSERT_EQ(Cu().cuParamSetSize(fill, 16), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLaunch(fill), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 2), (std::vector<uint32_t>{77, 5}));
}

TEST_F(StepwiseLaunch, WrongCalls) {
  const CUfunction fill = Function("fill");
  EXPECT_EQ(Cu().cuFuncSetBlockShape(fill, 0, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuFuncSetBlockShape(fill, 2048, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuFuncSetSharedSize(fill, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuParamSetSize(fill, 1 << 20), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLaunchGrid(nullptr, 1, 1), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(Cu().cuFuncSetBlockShape(fill, 32, 1, 1), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLaunchGrid(fill, 0, 1), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuParamSetSize(fill, 32), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLaunch(fill), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
}

}  // namespace
}  // namespace gpuloom::conformance
