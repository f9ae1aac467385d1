// SPDX-License-Identifier: Apache-2.0
// Cubes of textures, textures with gradients and mipmaps, and sums in surfaces, in PTX.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// cube(texture, places*, out*): thread i samples the direction and cube of its four floats.
// gradient(texture, out*, change): how both coordinates change; out[0] is the sample, out[1] tells that
// it was resident. level(texture, out*, level): of a cube. sums(surface).
constexpr char kText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .entry cube(.param .u64 texture, .param .u64 places, .param .u64 out)
{
  .reg .f32 %f<8>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [places];
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd2, %r1, 16, %rd2;
  mad.wide.u32 %rd3, %r1, 4, %rd3;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];
  tex.cube.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd1, {%f0, %f1, %f2, %f2}];
  st.global.f32 [%rd3], %f4;
  ret;
}

.visible .entry cubes(.param .u64 texture, .param .u64 places, .param .u64 out)
{
  .reg .f32 %f<8>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [places];
  ld.param.u64 %rd3, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd2, %r1, 16, %rd2;
  mad.wide.u32 %rd3, %r1, 4, %rd3;
  ld.global.v4.f32 {%f0, %f1, %f2, %f3}, [%rd2];
  cvt.rzi.u32.f32 %r2, %f3;
  tex.acube.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd1, {%r2, %f0, %f1, %f2}];
  st.global.f32 [%rd3], %f4;
  ret;
}

.visible .entry gradient(.param .u64 texture, .param .u64 out, .param .f32 change)
{
  .reg .f32 %f<8>;
  .reg .b32 %r<2>;
  .reg .b64 %rd<4>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  ld.param.f32 %f0, [change];
  mov.f32 %f1, 0f3F000000;
  mov.f32 %f2, 0f00000000;
  tex.grad.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}, [%rd1, {%f1, %f1}], {%f0, %f2}, {%f2, %f0};
  st.global.f32 [%rd2], %f4;
  tex.2d.v4.f32.f32 {%f4, %f5, %f6, %f7}|%p1, [%rd1, {%f1, %f1}];
  selp.u32 %r1, 1, 0, %p1;
  st.global.u32 [%rd2+4], %r1;
  ret;
}

.visible .entry sums(.param .u64 surface)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [surface];
  mov.u32 %r1, %tid.x;
  shl.b32 %r2, %r1, 2;
  and.b32 %r2, %r2, 12;
  mov.u32 %r3, 1;
  sured.b.add.2d.u32.trap [%rd1, {%r2, %r3}], %r1;
  mov.u32 %r3, 2;
  sured.b.max.2d.s32.clamp [%rd1, {%r2, %r3}], %r1;
  mov.u32 %r3, 77;
  sured.b.add.2d.u32.zero [%rd1, {%r2, %r3}], %r1;
  mov.u32 %r3, 3;
  shl.b32 %r4, %r3, %r1;
  sured.b.or.2d.b32.trap [%rd1, {%r2, %r3}], %r4;
  ret;
}
)PTX";

constexpr size_t kSide = 4;

class Cubes : public WithContext {
 protected:
  void SetUp() override {
    WithContext::SetUp();
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, kText), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (module_ != nullptr) {
      EXPECT_EQ(Cu().cuModuleUnload(module_), CUDA_SUCCESS);
    }
    WithContext::TearDown();
  }

  CUfunction Kernel(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS);
    return function;
  }
  static void Fill(CUarray array, const std::vector<float>& values, size_t side, size_t depth) {
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = values.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = copy.srcPitch = side * sizeof(float);
    copy.Height = copy.srcHeight = side;
    copy.Depth = depth;
    EXPECT_EQ(Cu().cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
  }

  CUmodule module_ = nullptr;
};

// The direction that meets the middle of an element of a face.
void DirectionOf(size_t face, size_t i, size_t j, float (&at)[4]) {
  const float s = (static_cast<float>(i) + 0.5F) / kSide * 2 - 1;
  const float t = (static_cast<float>(j) + 0.5F) / kSide * 2 - 1;
  const float directions[6][3] = {{1, -t, -s}, {-1, -t, s}, {s, 1, t},
                                  {s, -1, -t}, {s, -t, 1},  {-s, -t, -1}};
  // Only the direction counts, not the length.
  for (size_t k = 0; k < 3; ++k) at[k] = 2.5F * directions[face][k];
}

TEST_F(Cubes, EveryElementOfEveryFace) {
  for (const size_t count : {1, 2}) {
    SCOPED_TRACE(std::to_string(count) + " cubes");
    const size_t depth = 6 * count;
    const unsigned flags =
        CUDA_ARRAY3D_CUBEMAP | (count > 1 ? static_cast<unsigned>(CUDA_ARRAY3D_LAYERED) : 0u);
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {kSide, kSide, depth, CU_AD_FORMAT_FLOAT, 1, flags};
    CUarray array = nullptr;
    ASSERT_EQ(Cu().cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS);
    std::vector<float> values(kSide * kSide * depth), places;
    for (size_t n = 0; n < values.size(); ++n) {
      values[n] = static_cast<float>(n + 1);
      float at[4] = {};
      DirectionOf(n / (kSide * kSide) % 6, n % kSide, n / kSide % kSide, at);
      at[3] = static_cast<float>(n / (kSide * kSide * 6));
      places.insert(places.end(), at, at + 4);
    }
    Fill(array, values, kSide, depth);
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    CUDA_TEXTURE_DESC sampler = {};
    for (CUaddress_mode& mode : sampler.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
    sampler.flags = CU_TRSF_NORMALIZED_COORDINATES;
    CUtexObject texture = 0;
    ASSERT_EQ(Cu().cuTexObjectCreate(&texture, &resource, &sampler, nullptr), CUDA_SUCCESS);
    const CUdeviceptr in = Alloc(places.size() * sizeof(float));
    const CUdeviceptr out = Alloc(values.size() * sizeof(float));
    ASSERT_EQ(Cu().cuMemcpyHtoD_v2(in, places.data(), places.size() * sizeof(float)), CUDA_SUCCESS);
    ASSERT_EQ(Launch(Kernel(count == 1 ? "cube" : "cubes"), 1, static_cast<unsigned>(values.size()),
                     nullptr, texture, in, out),
              CUDA_SUCCESS);
    EXPECT_EQ(Download<float>(out, values.size()), values);
    EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS);
  }
}

TEST_F(Cubes, GradientsChooseTheLevel) {
  constexpr unsigned kLevels = 4;
  constexpr size_t kWidth = 8;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = {kWidth, kWidth, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  ASSERT_EQ(Cu().cuMipmappedArrayCreate(&mipmap, &descriptor, kLevels), CUDA_SUCCESS);
  for (unsigned level = 0; level < kLevels; ++level) {
    CUarray array = nullptr;
    ASSERT_EQ(Cu().cuMipmappedArrayGetLevel(&array, mipmap, level), CUDA_SUCCESS);
    const size_t side = kWidth >> level;
    Fill(array, std::vector<float>(side * side, static_cast<float>(10 + level)), side, 1);
  }
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY;
  resource.res.mipmap.hMipmappedArray = mipmap;
  CUDA_TEXTURE_DESC sampler = {};
  for (CUaddress_mode& mode : sampler.addressMode) mode = CU_TR_ADDRESS_MODE_CLAMP;
  sampler.flags = CU_TRSF_NORMALIZED_COORDINATES;
  sampler.maxMipmapLevelClamp = kLevels - 1;
  CUtexObject texture = 0;
  ASSERT_EQ(Cu().cuTexObjectCreate(&texture, &resource, &sampler, nullptr), CUDA_SUCCESS);
  const CUdeviceptr out = Alloc(8);
  for (unsigned level = 0; level < kLevels; ++level) {
    // From one element of this level to the next.
    const float change = static_cast<float>(1u << level) / kWidth;
    ASSERT_EQ(Launch(Kernel("gradient"), 1, 1, nullptr, texture, out, change), CUDA_SUCCESS);
    EXPECT_EQ(Download<float>(out, 1)[0], static_cast<float>(10 + level));
    EXPECT_EQ(Download<uint32_t>(out + 4, 1)[0], 1u);
  }
  EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
}

TEST_F(Cubes, SumsInASurface) {
  constexpr size_t kColumns = 4, kRows = 4;
  const CUDA_ARRAY3D_DESCRIPTOR descriptor = {
      kColumns, kRows, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array = nullptr;
  ASSERT_EQ(Cu().cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS);
  std::vector<uint32_t> words(kColumns * kRows, 1);
  CUDA_MEMCPY2D copy = {};
  copy.srcMemoryType = CU_MEMORYTYPE_HOST;
  copy.srcHost = words.data();
  copy.srcPitch = copy.WidthInBytes = kColumns * sizeof(uint32_t);
  copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
  copy.dstArray = array;
  copy.Height = kRows;
  ASSERT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC resource = {};
  resource.resType = CU_RESOURCE_TYPE_ARRAY;
  resource.res.array.hArray = array;
  CUsurfObject surface = 0;
  ASSERT_EQ(Cu().cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("sums"), 1, 8, nullptr, surface), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  std::swap(copy.srcMemoryType, copy.dstMemoryType);
  copy.srcArray = array;
  copy.dstHost = words.data();
  copy.dstPitch = copy.WidthInBytes;
  ASSERT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  // Threads i and i + 4 share a column.
  EXPECT_EQ(words, (std::vector<uint32_t>{1, 1, 1, 1, 5, 7, 9, 11, 4, 5, 6, 7, 51, 103, 205, 409}));
  EXPECT_EQ(Cu().cuSurfObjectDestroy(surface), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
