// SPDX-License-Identifier: Apache-2.0
// Textures and surfaces, each instruction that reads or writes one, in PTX: the driver compiles it,
// so a real one and the software one answer the same program. tests/programs/textures.cu has what
// the CUDA runtime makes of them.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// sample(texture, out*, x, y): out[0..3] of tex.2d, of floats; the others by their names.
constexpr char kText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .entry sample(.param .u64 texture, .param .u64 out, .param .f32 x, .param .f32 y)
{
  .reg .f32 %f<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  ld.param.f32 %f1, [x];
  ld.param.f32 %f2, [y];
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd1, {%f1, %f2}];
  st.global.v4.f32 [%rd2], {%f3, %f4, %f5, %f6};
  ret;
}

.visible .entry integers(.param .u64 texture, .param .u64 out, .param .f32 x, .param .f32 y)
{
  .reg .f32 %f<4>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  ld.param.f32 %f1, [x];
  ld.param.f32 %f2, [y];
  tex.2d.v4.u32.f32 {%r0, %r1, %r2, %r3}, [%rd1, {%f1, %f2}];
  st.global.v4.u32 [%rd2], {%r0, %r1, %r2, %r3};
  ret;
}

.visible .entry fetch(.param .u64 texture, .param .u64 out, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x;
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra DONE;
  tex.1d.v4.u32.s32 {%r3, %r4, %r5, %r6}, [%rd1, {%r2}];
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd2, %rd2, %rd3;
  st.global.u32 [%rd2], %r3;
DONE:
  ret;
}

.visible .entry layers(.param .u64 texture, .param .u64 out)
{
  .reg .f32 %f<8>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mov.f32 %f1, 0f3FC00000;
  tex.a2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd1, {%r1, %f1, %f1, %f1}];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd2, %rd2, %rd3;
  st.global.f32 [%rd2], %f3;
  ret;
}

.visible .entry sizes(.param .u64 texture, .param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [texture];
  ld.param.u64 %rd2, [out];
  txq.width.b32 %r1, [%rd1];
  txq.height.b32 %r2, [%rd1];
  st.global.v2.u32 [%rd2], {%r1, %r2};
  ret;
}

.visible .entry write(.param .u64 surface)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [surface];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 1000, %r1;
  shl.b32 %r4, %r1, 2;
  sust.b.2d.b32.trap [%rd1, {%r4, %r2}], {%r3};
  ret;
}

.visible .entry read(.param .u64 surface, .param .u64 out)
{
  .reg .b16 %h<4>;
  .reg .b32 %r<16>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [surface];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, 8;
  mov.u32 %r2, 3;
  mov.u32 %r3, -64;
  suld.b.2d.b32.trap {%r4}, [%rd1, {%r1, %r2}];
  suld.b.2d.v2.b32.trap {%r5, %r6}, [%rd1, {%r1, %r2}];
  suld.b.2d.b32.zero {%r7}, [%rd1, {%r3, %r2}];
  suld.b.2d.b32.clamp {%r8}, [%rd1, {%r3, %r2}];
  suld.b.2d.b8.trap {%h1}, [%rd1, {%r1, %r2}];
  suld.b.2d.b16.trap {%h2}, [%rd1, {%r1, %r2}];
  suld.b.2d.b64.trap {%rd3}, [%rd1, {%r1, %r2}];
  cvt.u32.u16 %r9, %h1;
  and.b32 %r9, %r9, 255;
  cvt.u32.u16 %r10, %h2;
  st.global.v4.u32 [%rd2], {%r4, %r5, %r6, %r7};
  st.global.v4.u32 [%rd2+16], {%r8, %r9, %r10, %r10};
  st.global.u64 [%rd2+32], %rd3;
  ret;
}
)PTX";

constexpr size_t kWidth = 8, kHeight = 4;

class Textures : public WithContext {
 protected:
  void SetUp() override {
    WithContext::SetUp();
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, kText), CUDA_SUCCESS);
    out_ = Alloc(256);
  }
  void TearDown() override {
    for (CUtexObject texture : textures_) {
      EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
    }
    for (CUarray array : arrays_) EXPECT_EQ(Cu().cuArrayDestroy(array), CUDA_SUCCESS);
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

  template <typename T>
  CUarray Image(const std::vector<T>& elements, size_t width, size_t height, size_t depth,
                CUarray_format format, unsigned channels, unsigned flags = 0) {
    const CUDA_ARRAY3D_DESCRIPTOR descriptor = {width, height, depth, format, channels, flags};
    CUarray array = nullptr;
    EXPECT_EQ(Cu().cuArray3DCreate_v2(&array, &descriptor), CUDA_SUCCESS);
    if (array == nullptr) return nullptr;
    arrays_.push_back(array);
    CUDA_MEMCPY3D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = elements.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.Depth = depth == 0 ? 1 : depth;
    copy.Height = height;
    copy.WidthInBytes = elements.size() * sizeof(T) / copy.Depth / height;
    copy.srcPitch = copy.WidthInBytes;
    copy.srcHeight = height;
    EXPECT_EQ(Cu().cuMemcpy3D_v2(&copy), CUDA_SUCCESS);
    return array;
  }
  CUarray Floats() {
    std::vector<float> elements(kWidth * kHeight);
    for (size_t i = 0; i < elements.size(); ++i) {
      elements[i] = static_cast<float>(i % kWidth + 10 * (i / kWidth));
    }
    return Image(elements, kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 1);
  }

  static CUDA_RESOURCE_DESC Of(CUarray array) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_ARRAY;
    resource.res.array.hArray = array;
    return resource;
  }
  static CUDA_TEXTURE_DESC Sampler(CUaddress_mode mode, CUfilter_mode filter, unsigned flags) {
    CUDA_TEXTURE_DESC sampler = {};
    for (CUaddress_mode& one : sampler.addressMode) one = mode;
    sampler.filterMode = filter;
    sampler.flags = flags;
    sampler.borderColor[0] = -5;
    return sampler;
  }
  CUtexObject Texture(const CUDA_RESOURCE_DESC& resource, const CUDA_TEXTURE_DESC& sampler) {
    CUtexObject texture = 0;
    EXPECT_EQ(Cu().cuTexObjectCreate(&texture, &resource, &sampler, nullptr), CUDA_SUCCESS);
    if (texture != 0) textures_.push_back(texture);
    return texture;
  }
  float Sample(CUtexObject texture, float x, float y) {
    EXPECT_EQ(Launch(Kernel("sample"), 1, 1, nullptr, texture, out_, x, y), CUDA_SUCCESS);
    return Download<float>(out_, 1)[0];
  }

  CUmodule module_ = nullptr;
  CUdeviceptr out_ = 0;
  std::vector<CUarray> arrays_;
  std::vector<CUtexObject> textures_;
};

TEST_F(Textures, AddressModesAndFilters) {
  const CUDA_RESOURCE_DESC image = Of(Floats());
  constexpr unsigned kNormal = CU_TRSF_NORMALIZED_COORDINATES;
  const struct {
    CUaddress_mode mode;
    CUfilter_mode filter;
    unsigned flags;
    float x, y, want;
  } kCases[] = {
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0, 2.5F, 1.5F, 12},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0, -3, 99, 30},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0, 2, 1, 6.5F},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0, 2.25F, 1.5F, 11.75F},
      {CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_POINT, 0, 8.5F, 1.5F, -5},
      {CU_TR_ADDRESS_MODE_BORDER, CU_TR_FILTER_MODE_LINEAR, 0, 8, 1.5F, 6},
      {CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, kNormal, 1.3125F, 0.375F, 12},
      {CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, kNormal, -0.0625F, 0.375F, 17},
      {CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_LINEAR, kNormal, 0, 0.375F, 13.5F},
      {CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, kNormal, 1.0625F, 0.375F, 17},
      {CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, kNormal, -0.1875F, 0.375F, 11},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kNormal, 5, 0.875F, 37},
  };
  for (const auto& one : kCases) {
    const CUtexObject texture = Texture(image, Sampler(one.mode, one.filter, one.flags));
    EXPECT_EQ(Sample(texture, one.x, one.y), one.want)
        << "mode " << one.mode << " filter " << one.filter << " at " << one.x << ", " << one.y;
  }
}

TEST_F(Textures, BytesAsFractionsAndAsIntegers) {
  std::vector<uint8_t> bytes(kWidth * kHeight * 4);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 5);
  const CUDA_RESOURCE_DESC image =
      Of(Image(bytes, kWidth, kHeight, 0, CU_AD_FORMAT_UNSIGNED_INT8, 4));
  const CUtexObject fractions =
      Texture(image, Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  ASSERT_EQ(Launch(Kernel("sample"), 1, 1, nullptr, fractions, out_, 1.5F, 0.5F), CUDA_SUCCESS);
  const std::vector<float> floats = Download<float>(out_, 4);
  for (size_t c = 0; c < 4; ++c) EXPECT_FLOAT_EQ(floats[c], bytes[4 + c] / 255.0F);
  const CUtexObject integers = Texture(
      image, Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER));
  ASSERT_EQ(Launch(Kernel("integers"), 1, 1, nullptr, integers, out_, 1.5F, 0.5F), CUDA_SUCCESS);
  const std::vector<uint32_t> words = Download<uint32_t>(out_, 4);
  for (size_t c = 0; c < 4; ++c) EXPECT_EQ(words[c], bytes[4 + c]);
}

TEST_F(Textures, LinearAndPitchedMemory) {
  const std::vector<uint32_t> words = Pattern(60, 1);
  const CUdeviceptr device = Alloc(240);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, words.data(), 240), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC linear = {};
  linear.resType = CU_RESOURCE_TYPE_LINEAR;
  linear.res.linear = {device, CU_AD_FORMAT_UNSIGNED_INT32, 1, 240};
  const CUtexObject fetched = Texture(
      linear, Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER));
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, fetched, out_, 64u), CUDA_SUCCESS);
  std::vector<uint32_t> expected = words;
  expected.resize(64);  // behind the end are zeros
  EXPECT_EQ(Download<uint32_t>(out_, 64), expected);

  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  ASSERT_EQ(Cu().cuMemAllocPitch_v2(&pitched, &pitch, kWidth * 4, kHeight, 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D32_v2(pitched, pitch, 0x40A00000, kWidth, kHeight), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC rows = {};
  rows.resType = CU_RESOURCE_TYPE_PITCH2D;
  rows.res.pitch2D = {pitched, CU_AD_FORMAT_FLOAT, 1, kWidth, kHeight, pitch};
  const CUtexObject sampled =
      Texture(rows, Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_LINEAR, 0));
  EXPECT_EQ(Sample(sampled, 3.25F, 2), 5);
  CUDA_RESOURCE_DESC same = {};
  ASSERT_EQ(Cu().cuTexObjectGetResourceDesc(&same, sampled), CUDA_SUCCESS);
  EXPECT_EQ(same.resType, CU_RESOURCE_TYPE_PITCH2D);
  EXPECT_EQ(same.res.pitch2D.devPtr, pitched);
  CUDA_TEXTURE_DESC sampler = {};
  ASSERT_EQ(Cu().cuTexObjectGetTextureDesc(&sampler, sampled), CUDA_SUCCESS);
  EXPECT_EQ(sampler.filterMode, CU_TR_FILTER_MODE_LINEAR);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(pitched), CUDA_SUCCESS);
}

// Only a kernel that read what is not there would fault.
TEST_F(Textures, MemoryIsNotJudged) {
  const std::vector<uint32_t> words = Pattern(64, 3);
  const CUdeviceptr device = Alloc(256);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(device, words.data(), 256), CUDA_SUCCESS);
  const CUDA_TEXTURE_DESC sampler =
      Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, CU_TRSF_READ_AS_INTEGER);
  const auto create = [&](CUdeviceptr address, size_t size_bytes, CUtexObject* texture) {
    CUDA_RESOURCE_DESC resource = {};
    resource.resType = CU_RESOURCE_TYPE_LINEAR;
    resource.res.linear = {address, CU_AD_FORMAT_UNSIGNED_INT32, 1, size_bytes};
    return Cu().cuTexObjectCreate(texture, &resource, &sampler, nullptr);
  };
  for (const size_t size_bytes : {size_t{1} << 20, size_t{64} << 20, size_t{4} << 30}) {
    CUtexObject texture = 0;
    ASSERT_EQ(create(device, size_bytes, &texture), CUDA_SUCCESS) << size_bytes;
    ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, texture, out_, 64u), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(out_, 64), words);
    EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
  }
  CUtexObject texture = 0;
  EXPECT_EQ(create(0, 4, &texture), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(device, ~size_t{3}, &texture), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(create(0x1234'5678'8000, 4096, &texture), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
  // Rows, more of them than there are.
  CUDA_RESOURCE_DESC rows = {};
  rows.resType = CU_RESOURCE_TYPE_PITCH2D;
  rows.res.pitch2D = {device, CU_AD_FORMAT_UNSIGNED_INT32, 1, 8, 4096, 32};
  ASSERT_EQ(Cu().cuTexObjectCreate(&texture, &rows, &sampler, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("integers"), 1, 1, nullptr, texture, out_, 2.5F, 1.5F), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 1)[0], words[10]);
  EXPECT_EQ(Cu().cuTexObjectDestroy(texture), CUDA_SUCCESS);
  rows.res.pitch2D.devPtr = 0;
  EXPECT_EQ(Cu().cuTexObjectCreate(&texture, &rows, &sampler, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Textures, LayersAndSizes) {
  std::vector<float> elements(kWidth * kHeight * 5);
  for (size_t i = 0; i < elements.size(); ++i) {
    elements[i] = static_cast<float>(100 * (i / (kWidth * kHeight)) + i % kWidth);
  }
  const CUtexObject texture =
      Texture(Of(Image(elements, kWidth, kHeight, 5, CU_AD_FORMAT_FLOAT, 1, CUDA_ARRAY3D_LAYERED)),
              Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  ASSERT_EQ(Launch(Kernel("layers"), 1, 5, nullptr, texture, out_), CUDA_SUCCESS);
  EXPECT_EQ(Download<float>(out_, 5), (std::vector<float>{1, 101, 201, 301, 401}));
  const CUtexObject flat =
      Texture(Of(Floats()), Sampler(CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, 0));
  ASSERT_EQ(Launch(Kernel("sizes"), 1, 1, nullptr, flat, out_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 2), (std::vector<uint32_t>{kWidth, kHeight}));
}

TEST_F(Textures, Surfaces) {
  const std::vector<uint32_t> zeros(32 * 8);
  const CUarray array =
      Image(zeros, 32, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST);
  const CUDA_RESOURCE_DESC resource = Of(array);
  CUsurfObject surface = 0;
  ASSERT_EQ(Cu().cuSurfObjectCreate(&surface, &resource), CUDA_SUCCESS);
  CUDA_RESOURCE_DESC same = {};
  ASSERT_EQ(Cu().cuSurfObjectGetResourceDesc(&same, surface), CUDA_SUCCESS);
  EXPECT_EQ(same.res.array.hArray, array);
  ASSERT_EQ(Launch(Kernel("write"), 8, 32, nullptr, surface), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("read"), 1, 1, nullptr, surface, out_), CUDA_SUCCESS);
  const std::vector<uint32_t> words = Download<uint32_t>(out_, 10);
  EXPECT_EQ(words,
            (std::vector<uint32_t>{3002, 3002, 3003, 0, 3000, 3002 & 255, 3002, 3002, 3002, 3003}));
  EXPECT_EQ(Cu().cuSurfObjectDestroy(surface), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
