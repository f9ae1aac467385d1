// SPDX-License-Identifier: Apache-2.0
// Products of matrices by four warps together, from shared memory in every layout that a descriptor
// can tell. Whole numbers throughout, so there is one right result.
#include <cstdio>

#include "tests/conformance/fixture.h"
#include "tests/conformance/matrices.h"

namespace gpuloom::conformance {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kRows = 64;
constexpr uint32_t kChunkBytes = 16;
constexpr uint32_t kDepthBytes = 32;      // of one instruction
constexpr uint32_t kPatternBytes = 1024;  // after which the widest swizzling repeats

struct Form {
  uint32_t n;
  const char *d, *a, *b;
  uint32_t a_span = 1, b_span = 1;  // chunks: 1 is not swizzled, 2, 4 and 8 are
  bool a_transposed = false, b_transposed = false;
  bool a_in_registers = false;
  bool negated = false;  // A
  bool adds = false;     // to what D held
  uint32_t steps = 1;    // instructions, one behind the other along the depth
  uint32_t groups = 1;   // of four warps
};

constexpr Form kForms[] = {
    {.n = 8, .d = "f32", .a = "f16", .b = "f16"},
    {.n = 64, .d = "f32", .a = "f16", .b = "f16", .a_span = 8, .b_span = 8, .steps = 4},
    {.n = 128, .d = "f32", .a = "bf16", .b = "bf16", .a_span = 4, .b_span = 4, .steps = 2},
    {.n = 24, .d = "f16", .a = "f16", .b = "f16", .a_span = 2, .b_span = 8, .adds = true},
    {.n = 256, .d = "f16", .a = "f16", .b = "f16", .a_span = 8, .b_span = 2},
    {.n = 16, .d = "f32", .a = "f16", .b = "f16", .adds = true, .steps = 3},
    // Rows of A and columns of B run along the chunks.
    {.n = 32, .d = "f32", .a = "f16", .b = "f16", .a_transposed = true, .b_transposed = true},
    {.n = 128,
     .d = "f32",
     .a = "bf16",
     .b = "bf16",
     .a_span = 8,
     .b_span = 8,
     .a_transposed = true,
     .b_transposed = true,
     .steps = 2},
    {.n = 64,
     .d = "f32",
     .a = "f16",
     .b = "f16",
     .a_span = 4,
     .b_span = 2,
     .a_transposed = true,
     .b_transposed = true,
     .steps = 2},
    {.n = 64, .d = "f32", .a = "f16", .b = "f16", .a_span = 8, .b_span = 4, .b_transposed = true},
    // A in registers.
    {.n = 64,
     .d = "f32",
     .a = "f16",
     .b = "f16",
     .b_span = 8,
     .b_transposed = true,
     .a_in_registers = true,
     .adds = true},
    {.n = 16, .d = "f32", .a = "tf32", .b = "tf32", .b_span = 4, .a_in_registers = true},
    {.n = 40, .d = "f32", .a = "tf32", .b = "tf32", .a_span = 8, .b_span = 8, .steps = 4},
    {.n = 32, .d = "f32", .a = "e4m3", .b = "e5m2", .a_span = 8, .b_span = 8, .steps = 2},
    {.n = 32, .d = "f16", .a = "e5m2", .b = "e4m3", .a_span = 4, .b_span = 2, .negated = true},
    {.n = 32, .d = "s32", .a = "s8", .b = "u8", .a_span = 8, .b_span = 8, .steps = 2},
    {.n = 64, .d = "s32", .a = "u8", .b = "s8", .b_span = 2, .a_in_registers = true, .adds = true},
    {.n = 16, .d = "s32", .a = "b1", .b = "b1", .a_span = 2, .b_span = 4, .steps = 1},
    {.n = 8,
     .d = "f32",
     .a = "f16",
     .b = "f16",
     .a_span = 8,
     .b_span = 8,
     .negated = true,
     .adds = true,
     .steps = 2,
     .groups = 2},
};

// How "lines", the rows of A or the columns of B, lie in shared memory.
struct Layout {
  Layout(const MatrixType& t, uint32_t l, uint32_t d, uint32_t s, bool along)
      : type(t), lines(l), depth(d), span(s), transposed(along) {
    const uint32_t depth_bytes = depth * type.bits / 8;
    const uint32_t group_bytes = 8 * span * kChunkBytes;  // eight lines, or eight depths
    const uint32_t line_groups = lines / 8, depth_groups = depth / 8;
    if (!transposed && span == 1) {
      leading = group_bytes;
      stride = group_bytes * (depth_bytes / kChunkBytes);
      step = 2 * leading;
      bytes = stride * line_groups;
    } else if (!transposed) {
      stride = group_bytes;
      leading = kChunkBytes;  // counts for nothing
      step = kDepthBytes;
      bytes = stride * line_groups;
    } else if (span == 1) {
      stride = group_bytes;
      leading = group_bytes * line_groups;
      step = 2 * leading;
      bytes = leading * depth_groups;
    } else {
      stride = group_bytes;
      leading = group_bytes * depth_groups;
      step = 2 * stride;
      bytes = leading * ((line_groups + span - 1) / span);
    }
  }
  [[nodiscard]] uint64_t BitOf(uint32_t line, uint32_t k) const {
    uint64_t byte = 0;
    const uint32_t per = kChunkBytes * 8 / type.bits;
    uint32_t bit = 0;
    if (!transposed) {
      const uint32_t chunk = k / per;
      byte = line / 8 * stride + line % 8 * span * kChunkBytes +
             chunk * (span == 1 ? leading : kChunkBytes);
      bit = k % per * type.bits;
    } else {
      const uint32_t chunk = line / per;
      byte = span == 1 ? chunk * stride + k / 8 * leading
                       : chunk / span * leading + chunk % span * kChunkBytes + k / 8 * stride;
      byte += k % 8 * span * kChunkBytes;
      bit = line % per * type.bits;
    }
    byte ^= byte / 128 % span * kChunkBytes;
    return 8 * byte + bit;
  }
  // Without the address, which the kernel knows.
  [[nodiscard]] uint64_t Descriptor() const {
    const uint64_t mode = span == 1 ? 0 : span == 8 ? 1 : span == 4 ? 2 : 3;
    return leading / 16 << 16 | uint64_t{stride} / 16 << 32 | mode << 62;
  }
  const MatrixType& type;
  uint32_t lines, depth, span;
  bool transposed;
  uint64_t leading = 0, stride = 0;
  uint32_t step = 0;  // bytes from one instruction's depth to the next one's
  uint64_t bytes = 0;
};

class Wgmma : public WithContext {
 protected:
  std::vector<uint8_t> Run(const std::string& text, const std::vector<uint8_t>& input,
                           uint32_t threads, size_t output_bytes) {
    CUmodule module = nullptr;
    EXPECT_EQ(Cu().cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS) << text;
    if (module == nullptr) return {};
    CUfunction function = nullptr;
    EXPECT_EQ(Cu().cuModuleGetFunction(&function, module, "test"), CUDA_SUCCESS);
    CUdeviceptr in = Alloc(input.size());
    CUdeviceptr out = Alloc(output_bytes);
    EXPECT_EQ(Cu().cuMemcpyHtoD_v2(in, input.data(), input.size()), CUDA_SUCCESS);
    void* parameters[] = {&in, &out};
    EXPECT_EQ(Cu().cuLaunchKernel(function, 1, 1, 1, threads, 1, 1,
                                  static_cast<unsigned>(input.size()) + kPatternBytes, nullptr,
                                  parameters, nullptr),
              CUDA_SUCCESS);
    std::vector<uint8_t> output = Download<uint8_t>(out, output_bytes);
    EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
    return output;
  }
};

std::string Hex(uint64_t value) {
  char text[20];
  snprintf(text, sizeof(text), "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

constexpr int64_t kHeld = 5;  // in every element of D before
constexpr uint32_t kFragmentRegisters = 4;

std::string TextOf(const Form& form, const Layout& a, const Layout& b, uint64_t b_at,
                   uint64_t fragments_at, uint64_t input_bytes, uint32_t d_count) {
  const MatrixType& d = TypeNamed(form.d);
  const uint64_t held = d.bits == 16 ? Encode(d, kHeld) * 0x10001 : Encode(d, kHeld);
  std::string text =
      ".version 8.4\n.target sm_90a\n.address_size 64\n.extern .shared .align 1024 .b8 stage[];\n"
      ".visible .entry test(.param .u64 in, .param .u64 out) {\n"
      ".reg .b32 %self, %threads, %base, %at, %to, %word;\n.reg .b64 %in, %out, %from, %wide;\n"
      ".reg .b64 %x<3>;\n.reg .pred %more, %adds, %first;\n.reg .b32 %d<" +
      std::to_string(d_count) +
      ">, %a<4>;\n"
      "ld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %self, %tid.x;\n"
      "mov.u32 %threads, %ntid.x;\nmov.u32 %base, stage;\nadd.u32 %base, %base, 1023;\n"
      "and.b32 %base, %base, 0xfffffc00;\nshl.b32 %at, %self, 2;\nshl.b32 %threads, %threads, 2;\n"
      "COPY:\nadd.u32 %to, %base, %at;\ncvt.u64.u32 %wide, %at;\nadd.u64 %from, %in, %wide;\n"
      "ld.global.b32 %word, [%from];\nst.shared.b32 [%to], %word;\nadd.u32 %at, %at, %threads;\n"
      "setp.lt.u32 %more, %at, " +
      std::to_string(input_bytes) +
      ";\n@%more bra COPY;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n"
      "mad.wide.u32 %out, %self, 4, %out;\nshr.u32 %at, %base, 4;\nand.b32 %at, %at, 0x3fff;\n"
      "cvt.u64.u32 %wide, %at;\nsetp.ne.u32 %adds, %threads, 0;\nsetp.ne.u32 %first, " +
      std::string(form.adds ? "1" : "0") + ", 0;\n";
  for (uint32_t i = 0; i < d_count; ++i) {
    text += "mov.b32 %d" + std::to_string(i) + ", " + Hex(held) + ";\n";
  }
  if (form.a_in_registers) {
    text += "mad.wide.u32 %from, %self, 4, %in;\n";
    for (uint32_t r = 0; r < kFragmentRegisters; ++r) {
      text += "ld.global.b32 %a" + std::to_string(r) + ", [%from+" +
              std::to_string(fragments_at + r * 4 * kLanes * form.groups * 4) + "];\n";
    }
  }
  text += "wgmma.fence.sync.aligned;\n";
  const bool integral = d.name == "s32";
  for (uint32_t s = 0; s < form.steps; ++s) {
    text += "add.u64 %x1, %wide, " + Hex(a.Descriptor() + s * a.step / 16) +
            ";\nadd.u64 %x2, %wide, " + Hex(b.Descriptor() + (b_at + s * b.step) / 16) + ";\n";
    text += "wgmma.mma_async.sync.aligned.m64n" + std::to_string(form.n) + "k" +
            std::to_string(8 * kDepthBytes / a.type.bits) + "." + form.d + "." + form.a + "." +
            form.b + (a.type.bits == 1 ? ".and.popc " : " ") + RegisterList('d', d_count) + ", " +
            (form.a_in_registers ? RegisterList('a', kFragmentRegisters) : "%x1") + ", %x2, " +
            (s == 0   ? "%first"
             : s == 1 ? "%adds"
                      : "1");
    if (!integral) text += form.negated ? ", -1, 1" : ", 1, 1";
    if (a.type.bits == 16) {
      if (!form.a_in_registers) text += form.a_transposed ? ", 1" : ", 0";
      text += form.b_transposed ? ", 1" : ", 0";
    }
    text += ";\n";
  }
  text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n";
  for (uint32_t i = 0; i < d_count; ++i) {
    text += "st.global.b32 [%out+" + std::to_string(i * 4 * 4 * kLanes * form.groups) + "], %d" +
            std::to_string(i) + ";\n";
  }
  return text + "ret;\n}\n";
}

TEST_F(Wgmma, EveryLayoutGivesTheProduct) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "the cases are PTX 8.4";
  if (!IsDevice(90)) GTEST_SKIP() << "the cases are made for sm_90a";
  int major = 0, minor = 0;
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_),
      CUDA_SUCCESS);
  ASSERT_EQ(
      Cu().cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device_),
      CUDA_SUCCESS);
  if (major != 9 || minor != 0) GTEST_SKIP() << "only compute capability 9.0 has wgmma";
  uint32_t number = 0;
  for (const Form& form : kForms) {
    SCOPED_TRACE("form " + std::to_string(number++) + ": n" + std::to_string(form.n) + " " +
                 form.d + " " + form.a + " " + form.b);
    const MatrixType &d = TypeNamed(form.d), &a = TypeNamed(form.a), &b = TypeNamed(form.b);
    const uint32_t depth = form.steps * 8 * kDepthBytes / a.bits;
    const WholeMatrix left = MatrixOf(a, kRows, depth, number);
    const WholeMatrix right = MatrixOf(b, depth, form.n, number + 100);
    const Layout in_a(a, kRows, depth, form.a_span, form.a_transposed);
    const Layout in_b(b, form.n, depth, form.b_span, form.b_transposed);
    const auto rounded = [](uint64_t bytes) {
      return (bytes + kPatternBytes - 1) / kPatternBytes * kPatternBytes;
    };
    const uint64_t b_at = rounded(in_a.bytes);
    const uint64_t fragments_at = b_at + rounded(in_b.bytes);
    const uint32_t threads = 4 * kLanes * form.groups;
    std::vector<uint8_t> input(fragments_at +
                               (form.a_in_registers ? kFragmentRegisters * 4 * threads : 0));
    for (uint32_t k = 0; k < depth; ++k) {
      for (uint32_t i = 0; i < kRows && !form.a_in_registers; ++i) {
        PutBits(&input, in_a.BitOf(i, k), a.bits, Encode(a, left.At(i, k)));
      }
      for (uint32_t j = 0; j < form.n; ++j) {
        PutBits(&input, 8 * b_at + in_b.BitOf(j, k), b.bits, Encode(b, right.At(k, j)));
      }
    }
    const uint32_t per = 32 / a.bits;
    for (uint32_t t = 0; form.a_in_registers && t < threads; ++t) {
      for (uint32_t r = 0; r < kFragmentRegisters; ++r) {
        for (uint32_t e = 0; e < per; ++e) {
          const uint32_t row = t / kLanes % 4 * 16 + t % kLanes / 4 + r % 2 * 8;
          const uint32_t column = t % 4 * per + e + r / 2 * 4 * per;
          PutBits(&input, 8 * (fragments_at + (uint64_t{r} * threads + t) * 4) + e * a.bits, a.bits,
                  Encode(a, left.At(row, column)));
        }
      }
    }
    const uint32_t d_per = 32 / d.bits;
    const uint32_t d_count = form.n / 2 / d_per;
    const std::string text = TextOf(form, in_a, in_b, b_at, fragments_at, fragments_at, d_count);
    const std::vector<uint8_t> output = Run(text, input, threads, size_t{d_count} * threads * 4);
    ASSERT_FALSE(output.empty());
    WholeMatrix want = ProductOf(left, right, WholeMatrix(kRows, form.n));
    for (int64_t& value : want.values) {
      value = (form.negated ? -value : value) + (form.adds ? kHeld : 0);
    }
    int wrong = 0;
    for (uint32_t t = 0; t < threads; ++t) {
      for (uint32_t i = 0; i < d_count * d_per; ++i) {
        const uint32_t row = t / kLanes % 4 * 16 + t % kLanes / 4 + i / 2 % 2 * 8;
        const uint32_t column = t % 4 * 2 + i % 2 + i / 4 * 8;
        const uint64_t got =
            GetBits(output, (uint64_t{i / d_per} * threads + t) * 32 + i % d_per * d.bits, d.bits);
        wrong += got != Encode(d, want.At(row, column)) ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0) << "elements of " << kRows * form.n;
  }
}

}  // namespace
}  // namespace gpuloom::conformance
