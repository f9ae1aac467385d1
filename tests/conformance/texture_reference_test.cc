// SPDX-License-Identifier: Apache-2.0
// Texture and surface references: variables of a module that its kernels name and host code binds.
// PTX only: the language lost them with CUDA 12, drivers still have them for older programs.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// fetch(out*, first, n): out[i] = linear[first + i]; sample(out*, x, y): out[0..3] of `image`;
// write and read: the surface. A reference's address is its handle: by_address is sample.
constexpr char kText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .global .texref linear;
.visible .global .texref image;
.visible .global .surfref written;
.visible .global .u32 number = 7;

.visible .entry fetch(.param .u64 out, .param .u32 first, .param .u32 n)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [first];
  ld.param.u32 %r2, [n];
  mov.u32 %r3, %tid.x;
  setp.ge.u32 %p1, %r3, %r2;
  @%p1 bra DONE;
  add.u32 %r4, %r1, %r3;
  tex.1d.v4.u32.s32 {%r5, %r6, %r7, %r8}, [linear, {%r4}];
  mul.wide.u32 %rd2, %r3, 4;
  add.s64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r5;
DONE:
  ret;
}

.visible .entry sample(.param .u64 out, .param .f32 x, .param .f32 y)
{
  .reg .f32 %f<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [x];
  ld.param.f32 %f2, [y];
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [image, {%f1, %f2}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}

.visible .entry by_address(.param .u64 out, .param .f32 x, .param .f32 y)
{
  .reg .f32 %f<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [x];
  ld.param.f32 %f2, [y];
  mov.u64 %rd2, image;
  tex.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [%rd2, {%f1, %f2}];
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}

.visible .entry write()
{
  .reg .b32 %r<8>;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 1000, %r1;
  shl.b32 %r4, %r1, 2;
  sust.b.2d.b32.trap [written, {%r4, %r2}], {%r3};
  ret;
}

.visible .entry read(.param .u64 out)
{
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 8;
  mov.u32 %r2, 3;
  mov.u32 %r3, -64;
  suld.b.2d.v2.b32.trap {%r4, %r5}, [written, {%r1, %r2}];
  suld.b.2d.b32.zero {%r6}, [written, {%r3, %r2}];
  suld.b.2d.b32.clamp {%r7}, [written, {%r3, %r2}];
  st.global.v4.u32 [%rd1], {%r4, %r5, %r6, %r7};
  ret;
}
)PTX";

// A text of its own: CUDA 13.0's ptxas crashes over one that has both tex.level of a reference and a
// surface reference.
constexpr char kLevelsText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64

.visible .global .texref levels;

.visible .entry level(.param .u64 out, .param .f32 x, .param .f32 y, .param .f32 level)
{
  .reg .f32 %f<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  ld.param.f32 %f1, [x];
  ld.param.f32 %f2, [y];
  ld.param.f32 %f7, [level];
  tex.level.2d.v4.f32.f32 {%f3, %f4, %f5, %f6}, [levels, {%f1, %f2}], %f7;
  st.global.v4.f32 [%rd1], {%f3, %f4, %f5, %f6};
  ret;
}
)PTX";

constexpr size_t kWidth = 8, kHeight = 4;

class TextureReferences : public WithContext {
 protected:
  void SetUp() override {
    WithContext::SetUp();
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, kText), CUDA_SUCCESS);
    out_ = Alloc(256);
  }
  void TearDown() override {
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
  CUtexref Reference(const char* name) {
    CUtexref reference = nullptr;
    EXPECT_EQ(Cu().cuModuleGetTexRef(&reference, module_, name), CUDA_SUCCESS);
    return reference;
  }

  // Elements are x + 10 y + `more`.
  CUarray Floats(float more = 0) {
    float elements[kHeight][kWidth];
    for (size_t y = 0; y < kHeight; ++y) {
      for (size_t x = 0; x < kWidth; ++x) elements[y][x] = static_cast<float>(x + 10 * y) + more;
    }
    const CUDA_ARRAY_DESCRIPTOR descriptor = {kWidth, kHeight, CU_AD_FORMAT_FLOAT, 1};
    CUarray array = nullptr;
    EXPECT_EQ(Cu().cuArrayCreate_v2(&array, &descriptor), CUDA_SUCCESS);
    if (array == nullptr) return nullptr;
    arrays_.push_back(array);
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = elements;
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = copy.srcPitch = sizeof(elements[0]);
    copy.Height = kHeight;
    EXPECT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
    return array;
  }
  CUdeviceptr Words(const std::vector<uint32_t>& words) {
    const CUdeviceptr device = Alloc(words.size() * 4);
    EXPECT_EQ(Cu().cuMemcpyHtoD_v2(device, words.data(), words.size() * 4), CUDA_SUCCESS);
    return device;
  }
  // `linear` as a fetch of words wants it.
  CUtexref Fetched() {
    const CUtexref reference = Reference("linear");
    EXPECT_EQ(Cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_UNSIGNED_INT32, 1), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER), CUDA_SUCCESS);
    return reference;
  }
  float Sample(float x, float y) {
    EXPECT_EQ(Launch(Kernel("sample"), 1, 1, nullptr, out_, x, y), CUDA_SUCCESS);
    return Download<float>(out_, 1)[0];
  }

  CUmodule module_ = nullptr;
  CUdeviceptr out_ = 0;
  std::vector<CUarray> arrays_;
};

TEST_F(TextureReferences, AreFoundByName) {
  const CUtexref first = Reference("image");
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Reference("image"), first);
  EXPECT_NE(Reference("linear"), first);
  CUsurfref surface = nullptr;
  EXPECT_EQ(Cu().cuModuleGetSurfRef(&surface, module_, "written"), CUDA_SUCCESS);
  CUtexref none = nullptr;
  EXPECT_EQ(Cu().cuModuleGetTexRef(&none, module_, "missing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuModuleGetSurfRef(&surface, module_, "missing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuModuleGetTexRef(&none, module_, "number"), CUDA_ERROR_NOT_FOUND);
  // The module's plain variables stay what they are.
  CUdeviceptr number = 0;
  size_t bytes = 0;
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&number, &bytes, module_, "number"), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(number, 1)[0], 7u);
}

TEST_F(TextureReferences, LinearMemory) {
  const std::vector<uint32_t> words = Pattern(60, 1);
  const CUdeviceptr device = Words(words);
  const CUtexref reference = Fetched();
  size_t offset = 99;
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(&offset, reference, device, 240), CUDA_SUCCESS);
  EXPECT_EQ(offset, 0u) << "of what cuMemAlloc gave";
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, out_, 0u, 60u), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 60), words);
  CUdeviceptr bound = 0;
  EXPECT_EQ(Cu().cuTexRefGetAddress_v2(&bound, reference), CUDA_SUCCESS);
  EXPECT_EQ(bound, device);
}

// Only a kernel that read what is not there would fault. CUDA 11's runtime binds 4 GiB where the program
// says no size.
TEST_F(TextureReferences, MemoryIsNotJudged) {
  const std::vector<uint32_t> words = Pattern(64, 5);
  const CUtexref reference = Fetched();
  const CUdeviceptr nowhere = 0x1234'5678'8000;
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, nowhere, 256), CUDA_SUCCESS);
  CUdeviceptr bound = 0;
  EXPECT_EQ(Cu().cuTexRefGetAddress_v2(&bound, reference), CUDA_SUCCESS);
  EXPECT_EQ(bound, nowhere);
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, static_cast<CUfilter_mode>(9)), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, Words(words), UINT32_MAX), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, out_, 0u, 64u), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 64), words);
}

TEST_F(TextureReferences, AnAddressInBetweenIsAnOffset) {
  const std::vector<uint32_t> words = Pattern(256, 2);
  const CUdeviceptr device = Words(words);
  int alignment = 0;
  ASSERT_EQ(Cu().cuDeviceGetAttribute(&alignment, CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, device_),
            CUDA_SUCCESS);
  const CUtexref reference = Fetched();
  const CUdeviceptr inside = device + 64;
  size_t offset = 99;
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(&offset, reference, inside, 256), CUDA_SUCCESS);
  EXPECT_EQ(offset, inside % static_cast<unsigned>(alignment));
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, out_, static_cast<unsigned>(offset / 4), 64u),
            CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 64),
            std::vector<uint32_t>(words.begin() + 16, words.begin() + 80));
}

TEST_F(TextureReferences, LaunchesSeeWhatWasBoundBeforeThem) {
  const std::vector<uint32_t> first = Pattern(64, 3), second = Pattern(64, 4);
  const CUdeviceptr devices[] = {Words(first), Words(second)};
  const CUdeviceptr outs[] = {out_, Alloc(256)};
  const CUtexref reference = Fetched();
  for (int turn = 0; turn < 20; ++turn) {
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, devices[i], 256), CUDA_SUCCESS);
      ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, outs[i], 0u, 64u), CUDA_SUCCESS);
    }
  }
  EXPECT_EQ(Download<uint32_t>(outs[0], 64), first);
  EXPECT_EQ(Download<uint32_t>(outs[1], 64), second);
}

TEST_F(TextureReferences, ALaunchThatWaitsKeepsWhatWasBound) {
  const std::vector<uint32_t> first = Pattern(64, 5), second = Pattern(64, 6);
  const CUdeviceptr before = Words(first), after = Words(second);
  const CUdeviceptr other = Alloc(256);
  auto* word = static_cast<volatile uint32_t*>(HostAlloc(4));
  const auto address = reinterpret_cast<CUdeviceptr>(word);
  const CUstream waiting = Stream(), running = Stream();
  const CUtexref reference = Fetched();
  const CUfunction fetch = Kernel("fetch");
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, before, 256), CUDA_SUCCESS);
  // What is launched first is loaded first, and nothing may have to be loaded while a stream waits.
  ASSERT_EQ(Launch(fetch, 1, 64, running, other, 0u, 64u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamSynchronize(running), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuStreamWaitValue32_v2(waiting, address, 1, CU_STREAM_WAIT_VALUE_EQ),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(fetch, 1, 64, waiting, out_, 0u, 64u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, after, 256), CUDA_SUCCESS);
  ASSERT_EQ(Launch(fetch, 1, 64, running, other, 0u, 64u), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuStreamSynchronize(running), CUDA_SUCCESS);
  *word = 1;
  EXPECT_EQ(Cu().cuStreamSynchronize(waiting), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 64), first);
  EXPECT_EQ(Download<uint32_t>(other, 64), second);
}

TEST_F(TextureReferences, ArraysWithModesAndFilters) {
  const CUtexref reference = Reference("image");
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, Floats(), CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
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
      {CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_POINT, kNormal, 1.3125F, 0.375F, 12},
      {CU_TR_ADDRESS_MODE_WRAP, CU_TR_FILTER_MODE_LINEAR, kNormal, 0, 0.375F, 13.5F},
      {CU_TR_ADDRESS_MODE_MIRROR, CU_TR_FILTER_MODE_POINT, kNormal, 1.0625F, 0.375F, 17},
      {CU_TR_ADDRESS_MODE_CLAMP, CU_TR_FILTER_MODE_POINT, kNormal, 5, 0.875F, 37},
  };
  for (const auto& one : kCases) {
    EXPECT_EQ(Cu().cuTexRefSetFlags(reference, one.flags), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuTexRefSetAddressMode(reference, 0, one.mode), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuTexRefSetAddressMode(reference, 1, one.mode), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, one.filter), CUDA_SUCCESS);
    EXPECT_EQ(Sample(one.x, one.y), one.want)
        << "mode " << one.mode << " filter " << one.filter << " at " << one.x << ", " << one.y;
  }
}

TEST_F(TextureReferences, Borders) {
  const CUtexref reference = Reference("image");
  float color[] = {-5, 0, 0, 0};
  ASSERT_EQ(Cu().cuTexRefSetAddressMode(reference, 0, CU_TR_ADDRESS_MODE_BORDER), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_BORDER), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetBorderColor(reference, color), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, Floats(), CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  EXPECT_EQ(Sample(8.5F, 1.5F), -5);
  EXPECT_EQ(Sample(2.5F, 1.5F), 12);
}

TEST_F(TextureReferences, ByAddress) {
  ASSERT_EQ(Cu().cuTexRefSetArray(Reference("image"), Floats(), CU_TRSA_OVERRIDE_FORMAT),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("by_address"), 1, 1, nullptr, out_, 3.5F, 2.5F), CUDA_SUCCESS);
  EXPECT_EQ(Download<float>(out_, 1)[0], 23);
}

TEST_F(TextureReferences, OneArrayAfterTheOther) {
  const CUtexref reference = Reference("image");
  const CUarray first = Floats();
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, first, CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  EXPECT_EQ(Sample(1.5F, 1.5F), 11);
  // As CUDA 11's runtime does it: to nothing in between, and without a flag.
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, reference, 0, 0), CUDA_SUCCESS);
  CUarray none = nullptr;
  EXPECT_EQ(Cu().cuTexRefGetArray(&none, reference), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, Floats(100), 0), CUDA_SUCCESS);
  EXPECT_EQ(Sample(1.5F, 1.5F), 111);
  // What nobody looks at any more can go.
  ASSERT_EQ(Cu().cuArrayDestroy(first), CUDA_SUCCESS);
  arrays_.erase(arrays_.begin());
  EXPECT_EQ(Sample(2.5F, 1.5F), 112);
}

TEST_F(TextureReferences, BoundMemoryCanGo) {
  const CUtexref reference = Reference("image");
  const CUarray first = Floats();
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, first, CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  EXPECT_EQ(Sample(1.5F, 1.5F), 11);
  ASSERT_EQ(Cu().cuArrayDestroy(first), CUDA_SUCCESS);
  arrays_.clear();
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_POINT), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, Floats(200), CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  EXPECT_EQ(Sample(1.5F, 1.5F), 211);

  const CUtexref fetched = Fetched();
  CUdeviceptr gone = 0;
  ASSERT_EQ(Cu().cuMemAlloc_v2(&gone, 256), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, fetched, gone, 256), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, out_, 0u, 64u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemFree_v2(gone), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFormat(fetched, CU_AD_FORMAT_UNSIGNED_INT32, 1), CUDA_SUCCESS);
  const std::vector<uint32_t> words = Pattern(64, 7);
  ASSERT_EQ(Cu().cuTexRefSetAddress_v2(nullptr, fetched, Words(words), 256), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("fetch"), 1, 64, nullptr, out_, 0u, 64u), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 64), words);
}

TEST_F(TextureReferences, RowsOfLinearMemory) {
  CUdeviceptr pitched = 0;
  size_t pitch = 0;
  ASSERT_EQ(Cu().cuMemAllocPitch_v2(&pitched, &pitch, kWidth * 4, kHeight, 4), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemsetD2D32_v2(pitched, pitch, 0x40A00000, kWidth, kHeight), CUDA_SUCCESS);
  const CUtexref reference = Reference("image");
  const CUDA_ARRAY_DESCRIPTOR shape = {kWidth, kHeight, CU_AD_FORMAT_FLOAT, 1};
  ASSERT_EQ(Cu().cuTexRefSetAddress2D_v3(reference, &shape, pitched, pitch), CUDA_SUCCESS);
  EXPECT_EQ(Sample(3.25F, 2), 5);
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  EXPECT_EQ(Sample(3.25F, 2), 5);
  EXPECT_EQ(Cu().cuTexRefSetAddress2D_v3(reference, &shape, pitched + 4, pitch),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefSetAddress2D_v3(reference, &shape, pitched, pitch + 1),
            CUDA_ERROR_INVALID_VALUE);
  CUdeviceptr bound = 0;
  EXPECT_EQ(Cu().cuTexRefGetAddress_v2(&bound, reference), CUDA_SUCCESS);
  EXPECT_EQ(bound, pitched);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(pitched), CUDA_SUCCESS);
}

TEST_F(TextureReferences, Levels) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {kWidth, kHeight, 0, CU_AD_FORMAT_FLOAT, 1, 0};
  CUmipmappedArray mipmap = nullptr;
  ASSERT_EQ(Cu().cuMipmappedArrayCreate(&mipmap, &shape, 2), CUDA_SUCCESS);
  for (unsigned level = 0; level < 2; ++level) {
    CUarray array = nullptr;
    ASSERT_EQ(Cu().cuMipmappedArrayGetLevel(&array, mipmap, level), CUDA_SUCCESS);
    const std::vector<float> elements(kWidth * kHeight, 1.0F + 10.0F * static_cast<float>(level));
    CUDA_MEMCPY2D copy = {};
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = elements.data();
    copy.dstMemoryType = CU_MEMORYTYPE_ARRAY;
    copy.dstArray = array;
    copy.WidthInBytes = copy.srcPitch = kWidth * 4 >> level;
    copy.Height = kHeight >> level;
    ASSERT_EQ(Cu().cuMemcpy2D_v2(&copy), CUDA_SUCCESS);
  }
  CUmodule module = nullptr;
  CUtexref reference = nullptr;
  CUfunction kernel = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&module, kLevelsText), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetTexRef(&reference, module, "levels"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetFunction(&kernel, module, "level"), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFlags(reference, CU_TRSF_NORMALIZED_COORDINATES), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMipmapFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMipmapLevelClamp(reference, 0, 1), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetMipmappedArray(reference, mipmap, CU_TRSA_OVERRIDE_FORMAT),
            CUDA_SUCCESS);
  CUmipmappedArray same = nullptr;
  EXPECT_EQ(Cu().cuTexRefGetMipmappedArray(&same, reference), CUDA_SUCCESS);
  EXPECT_EQ(same, mipmap);
  const auto at = [&](float level) {
    EXPECT_EQ(Launch(kernel, 1, 1, nullptr, out_, 0.5F, 0.5F, level), CUDA_SUCCESS);
    return Download<float>(out_, 1)[0];
  };
  EXPECT_EQ(at(0), 1);
  EXPECT_EQ(at(1), 11);
  EXPECT_EQ(at(0.5F), 6);
  EXPECT_EQ(Cu().cuTexRefSetMipmapLevelBias(reference, 1), CUDA_SUCCESS);
  EXPECT_EQ(at(0), 11);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMipmappedArrayDestroy(mipmap), CUDA_SUCCESS);
}

TEST_F(TextureReferences, Surfaces) {
  const CUDA_ARRAY3D_DESCRIPTOR shape = {
      32, 8, 0, CU_AD_FORMAT_UNSIGNED_INT32, 1, CUDA_ARRAY3D_SURFACE_LDST};
  CUarray array = nullptr;
  ASSERT_EQ(Cu().cuArray3DCreate_v2(&array, &shape), CUDA_SUCCESS);
  arrays_.push_back(array);
  CUsurfref reference = nullptr;
  ASSERT_EQ(Cu().cuModuleGetSurfRef(&reference, module_, "written"), CUDA_SUCCESS);
  CUarray bound = nullptr;
  EXPECT_EQ(Cu().cuSurfRefGetArray(&bound, reference), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(Cu().cuSurfRefSetArray(reference, array, 0), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuSurfRefGetArray(&bound, reference), CUDA_SUCCESS);
  EXPECT_EQ(bound, array);
  ASSERT_EQ(Launch(Kernel("write"), 8, 32, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Kernel("read"), 1, 1, nullptr, out_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 4), (std::vector<uint32_t>{3002, 3003, 0, 3000}));
}

TEST_F(TextureReferences, TellWhatWasSet) {
  const CUtexref reference = Reference("image");
  CUarray array = nullptr;
  CUmipmappedArray mipmap = nullptr;
  CUdeviceptr address = 0;
  EXPECT_EQ(Cu().cuTexRefGetArray(&array, reference), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefGetMipmappedArray(&mipmap, reference), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefGetAddress_v2(&address, reference), CUDA_ERROR_INVALID_VALUE);

  float color[] = {1, 2, 3, 4};
  EXPECT_EQ(Cu().cuTexRefSetAddressMode(reference, 0, CU_TR_ADDRESS_MODE_BORDER), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetAddressMode(reference, 1, CU_TR_ADDRESS_MODE_CLAMP), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMipmapFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMipmapLevelBias(reference, 0.5F), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMipmapLevelClamp(reference, 1, 3), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetMaxAnisotropy(reference, 4), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetBorderColor(reference, color), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFlags(reference, CU_TRSF_READ_AS_INTEGER), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_SIGNED_INT16, 2), CUDA_SUCCESS);

  CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
  EXPECT_EQ(Cu().cuTexRefGetAddressMode(&mode, reference, 0), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_BORDER);
  EXPECT_EQ(Cu().cuTexRefGetAddressMode(&mode, reference, 1), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_CLAMP);
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  EXPECT_EQ(Cu().cuTexRefGetFilterMode(&filter, reference), CUDA_SUCCESS);
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  filter = CU_TR_FILTER_MODE_POINT;
  EXPECT_EQ(Cu().cuTexRefGetMipmapFilterMode(&filter, reference), CUDA_SUCCESS);
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  float bias = 0, least = 0, most = 0, same[4] = {};
  EXPECT_EQ(Cu().cuTexRefGetMipmapLevelBias(&bias, reference), CUDA_SUCCESS);
  EXPECT_EQ(bias, 0.5F);
  EXPECT_EQ(Cu().cuTexRefGetMipmapLevelClamp(&least, &most, reference), CUDA_SUCCESS);
  EXPECT_EQ(least, 1);
  EXPECT_EQ(most, 3);
  int anisotropy = 0;
  EXPECT_EQ(Cu().cuTexRefGetMaxAnisotropy(&anisotropy, reference), CUDA_SUCCESS);
  EXPECT_EQ(anisotropy, 4);
  EXPECT_EQ(Cu().cuTexRefGetBorderColor(same, reference), CUDA_SUCCESS);
  EXPECT_EQ(std::memcmp(same, color, sizeof(same)), 0);
  unsigned flags = 0;
  EXPECT_EQ(Cu().cuTexRefGetFlags(&flags, reference), CUDA_SUCCESS);
  EXPECT_EQ(flags, static_cast<unsigned>(CU_TRSF_READ_AS_INTEGER));
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 0;
  EXPECT_EQ(Cu().cuTexRefGetFormat(&format, &channels, reference), CUDA_SUCCESS);
  EXPECT_EQ(format, CU_AD_FORMAT_SIGNED_INT16);
  EXPECT_EQ(channels, 2);

  const CUarray floats = Floats();
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, floats, CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefGetArray(&array, reference), CUDA_SUCCESS);
  EXPECT_EQ(array, floats);
  EXPECT_EQ(Cu().cuTexRefGetFormat(&format, nullptr, reference), CUDA_SUCCESS);
  EXPECT_EQ(format, CU_AD_FORMAT_FLOAT);
  EXPECT_EQ(Cu().cuTexRefGetAddress_v2(&address, reference), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(TextureReferences, OfNoModule) {
  CUtexref reference = nullptr;
  ASSERT_EQ(Cu().cuTexRefCreate(&reference), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(reference, CU_TR_FILTER_MODE_LINEAR), CUDA_SUCCESS);
  CUfilter_mode filter = CU_TR_FILTER_MODE_POINT;
  EXPECT_EQ(Cu().cuTexRefGetFilterMode(&filter, reference), CUDA_SUCCESS);
  EXPECT_EQ(filter, CU_TR_FILTER_MODE_LINEAR);
  const CUarray floats = Floats();
  EXPECT_EQ(Cu().cuTexRefSetArray(reference, floats, CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  CUarray bound = nullptr;
  EXPECT_EQ(Cu().cuTexRefGetArray(&bound, reference), CUDA_SUCCESS);
  EXPECT_EQ(bound, floats);
  EXPECT_EQ(Cu().cuTexRefDestroy(reference), CUDA_SUCCESS);
}

TEST_F(TextureReferences, OfALibrary) {
  CUlibrary library = nullptr;
  CUmodule module = nullptr;
  CUtexref reference = nullptr;
  CUfunction sample = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&library, kText, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLibraryGetModule(&module, library), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetTexRef(&reference, module, "image"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetFunction(&sample, module, "sample"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuTexRefSetArray(reference, Floats(300), CU_TRSA_OVERRIDE_FORMAT), CUDA_SUCCESS);
  // The other module's reference of that name is another one.
  ASSERT_EQ(Cu().cuTexRefSetArray(Reference("image"), Floats(), CU_TRSA_OVERRIDE_FORMAT),
            CUDA_SUCCESS);
  ASSERT_EQ(Launch(sample, 1, 1, nullptr, out_, 1.5F, 1.5F), CUDA_SUCCESS);
  EXPECT_EQ(Download<float>(out_, 1)[0], 311);
  EXPECT_EQ(Sample(1.5F, 1.5F), 11);
  EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
}

// What the driver does not judge, it keeps, but for address modes.
TEST_F(TextureReferences, WhatIsUnknownIsTaken) {
  const CUtexref reference = Reference("image");
  EXPECT_EQ(Cu().cuTexRefSetAddressMode(reference, 0, static_cast<CUaddress_mode>(9)),
            CUDA_SUCCESS);
  CUaddress_mode mode = CU_TR_ADDRESS_MODE_WRAP;
  EXPECT_EQ(Cu().cuTexRefGetAddressMode(&mode, reference, 0), CUDA_SUCCESS);
  EXPECT_EQ(mode, CU_TR_ADDRESS_MODE_CLAMP);
  EXPECT_EQ(Cu().cuTexRefSetFlags(reference, 4), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuTexRefSetFlags(reference, 0x40), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefSetFormat(reference, static_cast<CUarray_format>(0x77), 0), CUDA_SUCCESS);
  CUarray_format format = CU_AD_FORMAT_FLOAT;
  int channels = 1;
  EXPECT_EQ(Cu().cuTexRefGetFormat(&format, &channels, reference), CUDA_SUCCESS);
  EXPECT_EQ(static_cast<int>(format), 0x77);
  EXPECT_EQ(channels, 0);
}

TEST_F(TextureReferences, WrongCalls) {
  const CUtexref reference = Reference("image");
  EXPECT_EQ(Cu().cuTexRefSetMipmapFilterMode(reference, static_cast<CUfilter_mode>(9)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefSetFormat(reference, CU_AD_FORMAT_FLOAT, 3), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuTexRefSetFilterMode(nullptr, CU_TR_FILTER_MODE_POINT),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuTexRefSetArray(reference, nullptr, CU_TRSA_OVERRIDE_FORMAT),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cu().cuParamSetTexRef(Kernel("sample"), 0, reference), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuParamSetTexRef(Kernel("sample"), CU_PARAM_TR_DEFAULT, reference),
            CUDA_ERROR_INVALID_VALUE);
  CUsurfref surface = nullptr;
  ASSERT_EQ(Cu().cuModuleGetSurfRef(&surface, module_, "written"), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuSurfRefSetArray(surface, Floats(), 1), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
