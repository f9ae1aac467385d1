// SPDX-License-Identifier: Apache-2.0
// Texture and surface instructions on images in plain memory: what each addressing mode, filter and
// kind of access gives.
#include <gtest/gtest.h>

#include "agent/softgpu/exec/machine/sampler.h"
#include "agent/softgpu/exec/testing/machine_fixture.h"

namespace gpuloom::softgpu {
namespace {

constexpr uint64_t kTextureHandle = 7;
constexpr uint64_t kSurfaceHandle = 8;

class ImageMemory : public AddressSpace {
 public:
  explicit ImageMemory(TestMemory& memory) : memory_(memory) {}
  Range Find(uint64_t address) const override { return memory_.Find(address); }
  uint64_t generation() const override { return memory_.generation(); }
  std::shared_ptr<const Texture> FindTexture(uint64_t handle) const override {
    return handle == kTextureHandle ? texture : nullptr;
  }
  std::shared_ptr<const Image> FindSurface(uint64_t handle) const override {
    return handle == kSurfaceHandle ? surface : nullptr;
  }

  std::shared_ptr<Texture> texture = std::make_shared<Texture>();
  std::shared_ptr<Image> surface = std::make_shared<Image>();

 private:
  TestMemory& memory_;
};

// 4 x 3 x 2 floats: x + 10 y + 100 z.
class Images : public testing::Test {
 protected:
  Images() : memory(heap) {
    image.width = 4;
    image.height = 3;
    image.depth = 2;
    image.channels = 1;
    image.element_bytes = 4;
    image.format = ElementFormat::kF32;
    image.pitch_bytes = 16;
    image.slice_bytes = 48;
    auto* values = heap.AllocateArray<float>(24);
    image.begin = reinterpret_cast<uint64_t>(values);
    for (int i = 0; i < 24; ++i) {
      values[i] = static_cast<float>(i % 4 + i / 4 % 3 * 10 + i / 12 * 100);
    }
    memory.texture->levels = {image};
    *memory.surface = image;
    out = heap.AllocateArray<uint32_t>(8);
  }

  // Runs `text` with %rd1: out, %rd2: the texture's handle, %rd3: the surface's.
  Outcome Run(const std::string& text, uint32_t threads = 1) {
    const std::string ptx =
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry test(.param .u64 out, .param .u64 texture, .param .u64 surface) {\n"
        ".reg .b16 %h<8>; .reg .b32 %r<16>; .reg .f32 %f<16>; .reg .b64 %rd<8>;\n"
        "ld.param.u64 %rd1, [out]; ld.param.u64 %rd2, [texture];\n"
        "ld.param.u64 %rd3, [surface];\n" +
        text + "\nret; }\n";
    std::string error;
    const auto module = Module::Load(
        ptx, [this](size_t size, size_t) { return heap.Allocate(size); }, &error);
    EXPECT_NE(module, nullptr) << error;
    if (module == nullptr) return {};
    Grid grid;
    grid.module = module.get();
    grid.kernel = module->FindKernel("test");
    const uint64_t params[] = {reinterpret_cast<uint64_t>(out), kTextureHandle, kSurfaceHandle};
    grid.params = reinterpret_cast<const std::byte*>(params);
    grid.block = {threads};
    const std::atomic<bool> stop{false};
    return softgpu::Run(grid, memory, stop);
  }

  float Fetch(const std::string& instruction) {
    const Outcome outcome = Run(instruction + "\nst.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};");
    EXPECT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
    float value;
    std::memcpy(&value, out, 4);
    return value;
  }
  // Of two dimensions, at immediate places.
  float At(float x, float y) {
    char text[200];
    snprintf(text, sizeof(text),
             "mov.f32 %%f4, 0f%08X; mov.f32 %%f5, 0f%08X;"
             "tex.2d.v4.f32.f32 {%%f0, %%f1, %%f2, %%f3}, [%%rd2, {%%f4, %%f5}];",
             std::bit_cast<uint32_t>(x), std::bit_cast<uint32_t>(y));
    return Fetch(text);
  }

  TestMemory heap;
  ImageMemory memory;
  Image image;
  uint32_t* out;
};

TEST_F(Images, SurfaceLoadsFillRegistersOfAnySize) {
  // The register behind the one of 8 bits keeps its value in all lanes.
  const Outcome outcome =
      Run(".reg .b8 %b; .reg .b64 %kept<1>; .reg .pred %p; mov.u64 %kept0, 7; mov.u32 %r0, 0;"
          "mov.u32 %r1, 11; suld.b.2d.b8.trap %b, [%rd3, {%r1, %r0}]; setp.eq.u64 %p, %kept0, 7;"
          "vote.sync.ballot.b32 %r2, %p, 0xffffffff; st.global.u32 [%rd1], %r2;"
          "st.global.u8 [%rd1+4], %b;",
          32);
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  EXPECT_EQ(out[0], 0xffffffffu);
  EXPECT_EQ(out[1], 0x40u);  // the highest byte of 2.0
}

TEST_F(Images, NearestClamps) {
  EXPECT_EQ(At(1.5F, 2.5F), 21);
  EXPECT_EQ(At(1.99F, 0.0F), 1);
  EXPECT_EQ(At(-5.0F, 100.0F), 20);
}

TEST_F(Images, LinearMixesFour) {
  memory.texture->filters = true;
  EXPECT_EQ(At(1.5F, 1.5F), 11);
  EXPECT_EQ(At(2.0F, 1.0F), 6.5F);  // between 1, 2, 11 and 12
  EXPECT_EQ(At(0.0F, 0.0F), 0);
}

TEST_F(Images, NormalizedModes) {
  Texture& texture = *memory.texture;
  texture.normalized_coordinates = true;
  for (AddressMode& mode : texture.address_mode) mode = AddressMode::kWrap;
  EXPECT_EQ(At(1.375F, 0.5F), 11);
  EXPECT_EQ(At(-0.125F, 0.5F), 13);
  for (AddressMode& mode : texture.address_mode) mode = AddressMode::kMirror;
  EXPECT_EQ(At(1.125F, 0.5F), 13);
  EXPECT_EQ(At(-0.375F, 0.5F), 11);
  for (AddressMode& mode : texture.address_mode) mode = AddressMode::kBorder;
  texture.border[0] = 77;
  EXPECT_EQ(At(1.125F, 0.5F), 77);
  EXPECT_EQ(At(0.125F, 0.5F), 10);
  texture.filters = true;
  EXPECT_EQ(At(0.0F, 0.5F), (77 + 10) / 2.0F);
}

TEST_F(Images, OtherShapes) {
  EXPECT_EQ(Fetch("mov.f32 %f4, 0f3FC00000; mov.f32 %f5, 0f3FC00000;"
                  "tex.3d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f5, %f5, %f5}];"),
            111);
  EXPECT_EQ(Fetch("mov.f32 %f4, 0f3FC00000; mov.u32 %r0, 1;"
                  "tex.a2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%r0, %f4, %f4, %f4}];"),
            111);
  EXPECT_EQ(Fetch("mov.u32 %r1, 2; tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd2, {%r1}];"), 2);
  EXPECT_EQ(Fetch("mov.f32 %f4, 0f40200000; tex.1d.v4.f32.f32 {%f0, _, _, _}, [%rd2, {%f4}];"), 2);
  memory.texture->linear_memory = true;
  EXPECT_EQ(Fetch("mov.u32 %r1, 9; tex.1d.v4.f32.s32 {%f0, %f1, %f2, %f3}, [%rd2, {%r1}];"), 0);
}

TEST_F(Images, Levels) {
  Image half = image;
  half.width = 2;
  half.height = 1;
  half.depth = 1;
  memory.texture->levels.push_back(half);
  memory.texture->max_level = 9;
  const std::string text = "mov.f32 %f4, 0f3FC00000;";
  EXPECT_EQ(Fetch(text + "tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4}], "
                         "0f3F800000;"),
            1);  // clamped to the one row of level 1
  EXPECT_EQ(Fetch(text + "tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4}], "
                         "0f00000000;"),
            11);
  memory.texture->filters_levels = true;
  EXPECT_EQ(Fetch(text + "tex.level.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4}], "
                         "0f3F000000;"),
            6);
}

TEST_F(Images, GathersFour) {
  const Outcome outcome =
      Run("mov.f32 %f4, 0f40000000; tld4.r.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4}];"
          "st.global.v4.f32 [%rd1], {%f0, %f1, %f2, %f3};");
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  float got[4];
  std::memcpy(got, out, sizeof(got));
  EXPECT_EQ(got[0], 21);
  EXPECT_EQ(got[1], 22);
  EXPECT_EQ(got[2], 12);
  EXPECT_EQ(got[3], 11);
}

TEST_F(Images, Fractions) {
  auto* bytes = heap.AllocateArray<uint8_t>(4);
  bytes[0] = 255;
  bytes[1] = 51;
  Image small;
  small.begin = reinterpret_cast<uint64_t>(bytes);
  small.width = 4;
  small.element_bytes = 1;
  small.pitch_bytes = small.slice_bytes = 4;
  memory.texture->levels = {small};
  EXPECT_EQ(At(0.5F, 0), 1.0F);
  EXPECT_EQ(At(1.5F, 0), 51 / 255.0F);
  memory.texture->reads_integers = true;
  EXPECT_EQ(std::bit_cast<uint32_t>(At(1.5F, 0)), 51u);
}

TEST_F(Images, Queries) {
  const Outcome outcome =
      Run("txq.width.b32 %r0, [%rd2]; txq.height.b32 %r1, [%rd2]; txq.depth.b32 %r2, [%rd2];"
          "txq.num_mipmap_levels.b32 %r3, [%rd2]; suq.width.b32 %r4, [%rd3]; suq.height.b32 %r5, "
          "[%rd3];"
          "st.global.v4.u32 [%rd1], {%r0, %r1, %r2, %r3}; st.global.v2.u32 [%rd1+16], {%r4, %r5};");
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  EXPECT_EQ(std::vector<uint32_t>(out, out + 6), (std::vector<uint32_t>{4, 3, 2, 1, 4, 3}));
}

TEST_F(Images, SurfacesLoadAndStore) {
  const Outcome outcome =
      Run("mov.u32 %r0, 4; mov.u32 %r1, 1; mov.u32 %r2, 0f42280000;"
          "sust.b.2d.b32.trap [%rd3, {%r0, %r1}], {%r2};"
          "suld.b.2d.b32.trap {%r3}, [%rd3, {%r0, %r1}];"
          "suld.b.2d.v2.b32.clamp {%r4, %r5}, [%rd3, {-100, %r1}];"
          "suld.b.2d.b32.zero {%r6}, [%rd3, {16, %r1}];"
          "sust.b.2d.b32.zero [%rd3, {16, %r1}], {%r2};"
          "suld.b.3d.b64.trap {%rd4}, [%rd3, {8, %r1, %r1, %r1}];"
          "suld.b.a1d.b8.trap {%h1}, [%rd3, {%r1, 3}]; cvt.u32.u16 %r7, %h1;"
          "st.global.v4.u32 [%rd1], {%r3, %r4, %r5, %r6}; st.global.u64 [%rd1+16], %rd4;"
          "st.global.u32 [%rd1+24], %r7;");
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  EXPECT_EQ(out[0], bits(42));
  EXPECT_EQ(out[1], bits(10));
  EXPECT_EQ(out[2], bits(42));
  EXPECT_EQ(out[3], 0u);
  EXPECT_EQ(out[4], bits(112));
  EXPECT_EQ(out[5], bits(113));
  EXPECT_EQ(out[6], bits(100) >> 24);
  EXPECT_EQ(reinterpret_cast<float*>(image.begin)[8], 20);  // nothing was stored outside
}

TEST_F(Images, ReferencesAreWhatTheLaunchBindsThem) {
  constexpr char kText[] = R"PTX(
.version 8.0
.target sm_90
.address_size 64
.global .texref first;
.visible .global .texref second;
.global .surfref written;
.visible .entry test(.param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .f32 %f<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 4;
  mov.u32 %r2, 2;
  mov.f32 %f1, 0f3FC00000;
  tex.2d.v4.f32.f32 {%f2, %f3, %f4, %f5}, [first, {%f1, %f1}];
  mov.u64 %rd2, second;
  tex.2d.v4.f32.f32 {%f6, %f3, %f4, %f5}, [%rd2, {%f1, %f1}];
  sust.b.2d.b32.trap [written, {%r1, %r2}], {%r1};
  txq.width.b32 %r3, [first];
  st.global.v2.f32 [%rd1], {%f2, %f6};
  st.global.u32 [%rd1+8], %r3;
  ret;
}
)PTX";
  std::string error;
  const auto module = Module::Load(
      kText, [this](size_t size, size_t) { return heap.Allocate(size); }, &error);
  ASSERT_NE(module, nullptr) << error;
  ASSERT_EQ(module->references().size(), 3u);
  EXPECT_EQ(module->references()[1].name, "second");
  EXPECT_FALSE(module->references()[1].is_surface);
  EXPECT_TRUE(module->references()[2].is_surface);
  auto filtered = std::make_shared<Texture>(*memory.texture);
  filtered->filters = true;
  filtered->levels[0].begin += 4;
  const std::vector<BoundImage> bound = {
      {memory.texture, nullptr}, {filtered, nullptr}, {nullptr, memory.surface}};
  Grid grid;
  grid.module = module.get();
  grid.kernel = module->FindKernel("test");
  grid.references = &bound;
  const uint64_t params[] = {reinterpret_cast<uint64_t>(out)};
  grid.params = reinterpret_cast<const std::byte*>(params);
  const std::atomic<bool> stop{false};
  const Outcome outcome = softgpu::Run(grid, memory, stop);
  ASSERT_EQ(outcome.kind, Outcome::kOk) << outcome.detail;
  EXPECT_EQ(std::bit_cast<float>(out[0]), 11);
  EXPECT_EQ(std::bit_cast<float>(out[1]), 12);
  EXPECT_EQ(out[2], 4u);
  EXPECT_EQ(reinterpret_cast<uint32_t*>(image.begin)[9], 4u);
  const std::vector<BoundImage> unbound(3);
  grid.references = &unbound;
  EXPECT_EQ(softgpu::Run(grid, memory, stop).kind, Outcome::kIllegalAddress);
}

TEST_F(Images, ReferencesThatAreNotOffered) {
  const auto load = [](const std::string& variable, const std::string& instruction) {
    std::string error;
    const std::string text = ".version 8.0\n.target sm_90\n.address_size 64\n" + variable +
                             "\n.visible .entry test() {\n.reg .b32 %r<4>;\n" + instruction +
                             "\nret; }\n";
    EXPECT_EQ(Module::Load(
                  text, [](size_t, size_t) { return uint64_t{0}; }, &error),
              nullptr);
    return error;
  };
  EXPECT_NE(load(".global .texref t[4];", "").find("array"), std::string::npos);
  EXPECT_NE(load(".global .samplerref s;", "").find(".samplerref"), std::string::npos);
  EXPECT_NE(load(".const .texref t;", "").find(".texref"), std::string::npos);
  EXPECT_NE(load(".global .texref t; .global .texref t;", "").find("twice"), std::string::npos);
  EXPECT_NE(load(".global .texref t;", "ld.global.u32 %r1, [t];").find("no address"),
            std::string::npos);
}

TEST_F(Images, WrongAccessFaults) {
  EXPECT_EQ(Run("suld.b.2d.b32.trap {%r3}, [%rd3, {16, 0}];").kind, Outcome::kTrap);
  EXPECT_EQ(Run("suld.b.2d.b32.trap {%r3}, [%rd3, {2, 0}];").kind, Outcome::kMisaligned);
  EXPECT_EQ(Run("suld.b.2d.b32.trap {%r3}, [%rd2, {0, 0}];").kind, Outcome::kIllegalAddress);
  heap.Unmap(image.begin);
  EXPECT_EQ(Run("mov.f32 %f4, 0f00000000;"
                "tex.2d.v4.f32.f32 {%f0, %f1, %f2, %f3}, [%rd2, {%f4, %f4}];")
                .kind,
            Outcome::kIllegalAddress);
}

}  // namespace
}  // namespace gpuloom::softgpu
