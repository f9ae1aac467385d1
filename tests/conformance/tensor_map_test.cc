// SPDX-License-Identifier: Apache-2.0
// Tensor maps: made twice they are equal, another address makes another map, and the documented
// rules are errors. What a map does is a matter of the kernels that use it.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

class TensorMap : public WithContext {
 protected:
  struct Tiled {
    CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    uint32_t rank = 2;
    cuuint64_t address = 0;
    cuuint64_t dimensions[5] = {64, 32, 4, 2, 2};
    cuuint64_t strides[5] = {256, 8192, 32768, 65536, 0};
    cuuint32_t box[5] = {16, 8, 1, 1, 1};
    cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
    CUtensorMapInterleave interleave = CU_TENSOR_MAP_INTERLEAVE_NONE;
    CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
    CUtensorMapL2promotion l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
    CUtensorMapFloatOOBfill fill = CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE;

    CUresult Encode(CUtensorMap* map) const {
      return Cu().cuTensorMapEncodeTiled(map, type, rank, reinterpret_cast<void*>(address),
                                         dimensions, strides, box, element_strides, interleave,
                                         swizzle, l2_promotion, fill);
    }
  };

  void SetUp() override {
    if (IsDeviceBelow(90)) GTEST_SKIP() << "sm_90 has it first";
    WithContext::SetUp();
    int major = 0;
    CUdevice device = 0;
    ASSERT_EQ(Cu().cuCtxGetDevice(&device), CUDA_SUCCESS);
    ASSERT_EQ(
        Cu().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device),
        CUDA_SUCCESS);
    if (major < 9) GTEST_SKIP() << "no tensor maps before compute capability 9.0";
    tiled_.address = Alloc(1 << 20);
  }

  static bool Same(const CUtensorMap& a, const CUtensorMap& b) {
    return std::memcmp(&a, &b, sizeof(a)) == 0;
  }

  Tiled tiled_;
};

TEST_F(TensorMap, SameNumbersMakeTheSameMap) {
  CUtensorMap first = {}, second = {}, other = {};
  ASSERT_EQ(tiled_.Encode(&first), CUDA_SUCCESS);
  ASSERT_EQ(tiled_.Encode(&second), CUDA_SUCCESS);
  EXPECT_TRUE(Same(first, second));
  tiled_.box[1] = 4;
  ASSERT_EQ(tiled_.Encode(&other), CUDA_SUCCESS);
  EXPECT_FALSE(Same(first, other));
}

TEST_F(TensorMap, ReplacedAddressIsAsIfMadeWithIt) {
  CUtensorMap replaced = {}, made = {};
  ASSERT_EQ(tiled_.Encode(&replaced), CUDA_SUCCESS);
  tiled_.address += 4096;
  ASSERT_EQ(tiled_.Encode(&made), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTensorMapReplaceAddress(&replaced, reinterpret_cast<void*>(tiled_.address)),
            CUDA_SUCCESS);
  EXPECT_TRUE(Same(replaced, made));
}

TEST_F(TensorMap, EveryRankAndSwizzle) {
  CUtensorMap map = {};
  for (uint32_t rank = 1; rank <= 5; ++rank) {
    tiled_.rank = rank;
    EXPECT_EQ(tiled_.Encode(&map), CUDA_SUCCESS) << rank;
  }
  tiled_.rank = 3;
  tiled_.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  tiled_.l2_promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
  for (const auto swizzle :
       {CU_TENSOR_MAP_SWIZZLE_32B, CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B}) {
    tiled_.swizzle = swizzle;
    EXPECT_EQ(tiled_.Encode(&map), CUDA_SUCCESS) << swizzle;
  }
}

TEST_F(TensorMap, Im2col) {
  CUtensorMap first = {}, second = {};
  const cuuint64_t dimensions[] = {32, 16, 16, 4};  // C, W, H, N
  const cuuint64_t strides[] = {64, 1024, 16384};
  const cuuint32_t element_strides[] = {1, 1, 1, 1};
  const int lower[] = {-1, -1}, upper[] = {-1, -1};
  const auto encode = [&](CUtensorMap* map, uint32_t channels, uint32_t pixels) {
    return Cu().cuTensorMapEncodeIm2col(
        map, CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4, reinterpret_cast<void*>(tiled_.address),
        dimensions, strides, lower, upper, channels, pixels, element_strides,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  ASSERT_EQ(encode(&first, 32, 64), CUDA_SUCCESS);
  ASSERT_EQ(encode(&second, 32, 64), CUDA_SUCCESS);
  EXPECT_TRUE(Same(first, second));
  EXPECT_EQ(encode(&first, 257, 64), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(encode(&first, 32, 1025), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TensorMap, WrongMaps) {
  CUtensorMap map = {};
  const Tiled right = tiled_;
  EXPECT_EQ(tiled_.Encode(nullptr), CUDA_ERROR_INVALID_VALUE);
  const auto wrong = [&](const char* what, auto change) {
    Tiled tiled = right;
    change(tiled);
    EXPECT_EQ(tiled.Encode(&map), CUDA_ERROR_INVALID_VALUE) << what;
  };
  wrong("rank 0", [](Tiled& t) { t.rank = 0; });
  wrong("rank 6", [](Tiled& t) { t.rank = 6; });
  wrong("address", [](Tiled& t) { t.address += 8; });
  wrong("dimension", [](Tiled& t) { t.dimensions[1] = 0; });
  wrong("stride", [](Tiled& t) { t.strides[0] = 260; });
  wrong("box 0", [](Tiled& t) { t.box[0] = 0; });
  wrong("box 257", [](Tiled& t) { t.box[1] = 257; });
  wrong("inner box of 20 bytes", [](Tiled& t) { t.box[0] = 5; });
  wrong("element stride", [](Tiled& t) { t.element_strides[1] = 9; });
  wrong("swizzle's span", [](Tiled& t) { t.swizzle = CU_TENSOR_MAP_SWIZZLE_32B; });
  wrong("interleave of rank 2", [](Tiled& t) { t.interleave = CU_TENSOR_MAP_INTERLEAVE_16B; });
  for (const uint32_t unknown : {99u, UINT32_MAX}) {
    SCOPED_TRACE(unknown);
    wrong("type", [=](Tiled& t) { t.type = static_cast<CUtensorMapDataType>(unknown); });
    wrong("interleave",
          [=](Tiled& t) { t.interleave = static_cast<CUtensorMapInterleave>(unknown); });
    wrong("swizzle", [=](Tiled& t) { t.swizzle = static_cast<CUtensorMapSwizzle>(unknown); });
    wrong("promotion",
          [=](Tiled& t) { t.l2_promotion = static_cast<CUtensorMapL2promotion>(unknown); });
    wrong("fill", [=](Tiled& t) { t.fill = static_cast<CUtensorMapFloatOOBfill>(unknown); });
  }
}

}  // namespace
}  // namespace gpuloom::conformance
