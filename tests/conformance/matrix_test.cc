// SPDX-License-Identifier: Apache-2.0
// Products of matrices by one warp: mma, whose registers PTX lays out, and wmma, which loads and stores
// its own. Whole numbers throughout, so there is one right result.
#include "tests/conformance/fixture.h"
#include "tests/conformance/matrices.h"

namespace gpuloom::conformance {
namespace {

constexpr uint32_t kLanes = 32;

struct Form {
  uint32_t m, n, k;
  const char *d, *a, *b, *c;
  const char* ending = "";  // behind the types
};

std::string NameOf(const Form& form) {
  return "m" + std::to_string(form.m) + "n" + std::to_string(form.n) + "k" +
         std::to_string(form.k) + "." + form.d + "." + form.a + "." + form.b + "." + form.c +
         form.ending;
}

class Matrices : public WithContext {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12040)) GTEST_SKIP() << "the cases are PTX 8.4";
    if (IsDeviceBelow(90)) GTEST_SKIP() << "the cases are made for sm_90";
    WithContext::SetUp();
  }

  // Runs kernel "test" of `text` in one warp on `input`; gives what it wrote.
  std::vector<uint8_t> Run(const std::string& text, const std::vector<uint8_t>& input,
                           size_t output_bytes) {
    CUmodule module = nullptr;
    EXPECT_EQ(Cu().cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS) << text;
    if (module == nullptr) return {};
    CUfunction function = nullptr;
    EXPECT_EQ(Cu().cuModuleGetFunction(&function, module, "test"), CUDA_SUCCESS);
    const CUdeviceptr in = Alloc(input.size());
    const CUdeviceptr out = Alloc(output_bytes);
    EXPECT_EQ(Cu().cuMemcpyHtoD_v2(in, input.data(), input.size()), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuMemsetD8_v2(out, 0xee, output_bytes), CUDA_SUCCESS);
    EXPECT_EQ(Launch(function, 1, kLanes, nullptr, in, out), CUDA_SUCCESS);
    std::vector<uint8_t> output = Download<uint8_t>(out, output_bytes);
    EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
    return output;
  }
};

std::string Beginning(uint32_t register_bits, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
  const std::string type = register_bits == 64 ? ".b64" : ".b32";
  const auto range = [](char name, uint32_t count) {
    return " %" + std::string(1, name) + "<" + std::to_string(count) + ">";
  };
  return ".version 8.4\n.target sm_90\n.address_size 64\n"
         ".visible .entry test(.param .u64 in, .param .u64 out) {\n"
         ".shared .align 128 .b8 stage[4096];\n"
         ".reg .b32 %lane, %word, %at;\n.reg .b64 %in, %out;\n.reg .pred %more;\n.reg " +
         type + range('a', a) + "," + range('b', b) + "," + range('c', c) + "," + range('d', d) +
         ";\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\nmov.u32 %lane, %laneid;\n";
}

// --- mma ------------------------------------------------------------------------------------------

// Where a lane's element lies, as PTX's pictures of mma have it. Registers of A and B hold `per`
// elements; registers of C and D count as one element each.
struct Position {
  uint32_t row, column;
};
Position PositionInA(uint32_t m, uint32_t per, uint32_t lane, uint32_t r, uint32_t j) {
  const uint32_t halves = m / 8;
  return {lane / 4 + (r % halves) * 8, lane % 4 * per + j + (r / halves) * 4 * per};
}
Position PositionInB(uint32_t per, uint32_t lane, uint32_t r, uint32_t j) {
  return {lane % 4 * per + j + r * 4 * per, lane / 4};
}
Position PositionInC(uint32_t lane, uint32_t i) {
  return {lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2};
}

constexpr Form kMmaForms[] = {
    {16, 8, 8, "f32", "f16", "f16", "f32"},
    {16, 8, 8, "f16", "f16", "f16", "f16"},
    {16, 8, 16, "f32", "f16", "f16", "f32"},
    {16, 8, 16, "f16", "f16", "f16", "f16"},
    {16, 8, 8, "f32", "bf16", "bf16", "f32"},
    {16, 8, 16, "f32", "bf16", "bf16", "f32"},
    {16, 8, 4, "f32", "tf32", "tf32", "f32"},
    {16, 8, 8, "f32", "tf32", "tf32", "f32"},
    {16, 8, 32, "f32", "e4m3", "e4m3", "f32"},
    {16, 8, 32, "f32", "e4m3", "e5m2", "f32"},
    {16, 8, 32, "f32", "e5m2", "e4m3", "f32"},
    {16, 8, 32, "f32", "e5m2", "e5m2", "f32"},
    {8, 8, 4, "f64", "f64", "f64", "f64"},
    {16, 8, 4, "f64", "f64", "f64", "f64"},
    {16, 8, 8, "f64", "f64", "f64", "f64"},
    {16, 8, 16, "f64", "f64", "f64", "f64"},
    {8, 8, 16, "s32", "s8", "s8", "s32"},
    {16, 8, 16, "s32", "u8", "s8", "s32"},
    {16, 8, 32, "s32", "s8", "u8", "s32"},
    {16, 8, 32, "s32", "u8", "u8", "s32"},
    {8, 8, 32, "s32", "s4", "s4", "s32"},
    {16, 8, 32, "s32", "u4", "s4", "s32"},
    {16, 8, 64, "s32", "s4", "u4", "s32"},
    {8, 8, 128, "s32", "b1", "b1", "s32", ".xor.popc"},
    {16, 8, 128, "s32", "b1", "b1", "s32", ".and.popc"},
    {16, 8, 256, "s32", "b1", "b1", "s32", ".xor.popc"},
};

TEST_F(Matrices, Mma) {
  for (const Form& form : kMmaForms) {
    SCOPED_TRACE(NameOf(form));
    const MatrixType &d = TypeNamed(form.d), &a = TypeNamed(form.a), &b = TypeNamed(form.b),
                     &c = TypeNamed(form.c);
    const uint32_t word_bits = d.bits == 64 ? 64 : 32;
    const uint32_t per = word_bits / a.bits;
    const uint32_t a_count = form.m * form.k / kLanes / per;
    const uint32_t b_count = form.n * form.k / kLanes / per;
    const uint32_t sums = form.m * form.n / kLanes;  // elements of C in a lane
    const uint32_t c_per = word_bits / c.bits, d_per = word_bits / d.bits;
    const uint32_t c_count = sums / c_per, d_count = sums / d_per;
    const WholeMatrix left = MatrixOf(a, form.m, form.k, 1);
    const WholeMatrix right = MatrixOf(b, form.k, form.n, 2);
    const WholeMatrix start = MatrixOf(c, form.m, form.n, 3);
    std::vector<uint8_t> input((a_count + b_count + c_count) * kLanes * word_bits / 8);
    const auto put = [&](uint32_t r, uint32_t lane, uint32_t bit, const MatrixType& type,
                         int64_t value) {
      PutBits(&input, (uint64_t{r} * kLanes + lane) * word_bits + bit, type.bits,
              Encode(type, value));
    };
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t r = 0; r < a_count; ++r) {
        for (uint32_t j = 0; j < per; ++j) {
          const Position at = PositionInA(form.m, per, lane, r, j);
          put(r, lane, j * a.bits, a, left.At(at.row, at.column));
        }
      }
      for (uint32_t r = 0; r < b_count; ++r) {
        for (uint32_t j = 0; j < per; ++j) {
          const Position at = PositionInB(per, lane, r, j);
          put(a_count + r, lane, j * b.bits, b, right.At(at.row, at.column));
        }
      }
      for (uint32_t i = 0; i < sums; ++i) {
        const Position at = PositionInC(lane, i);
        put(a_count + b_count + i / c_per, lane, i % c_per * c.bits, c,
            start.At(at.row, at.column));
      }
    }
    const std::string type = word_bits == 64 ? ".b64 " : ".b32 ";
    std::string text = Beginning(word_bits, a_count, b_count, c_count, d_count);
    const std::string bytes = std::to_string(word_bits / 8);
    text += "mad.wide.u32 %in, %lane, " + bytes + ", %in;\nmad.wide.u32 %out, %lane, " + bytes +
            ", %out;\n";
    uint32_t at = 0;
    const auto load = [&](char name, uint32_t count) {
      for (uint32_t i = 0; i < count; ++i, at += kLanes * word_bits / 8) {
        text += "ld.global" + type + "%" + name + std::to_string(i) + ", [%in+" +
                std::to_string(at) + "];\n";
      }
    };
    load('a', a_count);
    load('b', b_count);
    load('c', c_count);
    text += "mma.sync.aligned.m" + std::to_string(form.m) + "n" + std::to_string(form.n) + "k" +
            std::to_string(form.k) + ".row.col." + form.d + "." + form.a + "." + form.b + "." +
            form.c + form.ending + " " + RegisterList('d', d_count) + ", " +
            RegisterList('a', a_count) + ", " + RegisterList('b', b_count) + ", " +
            RegisterList('c', c_count) + ";\n";
    for (uint32_t i = 0; i < d_count; ++i) {
      text += "st.global" + type + "[%out+" + std::to_string(i * kLanes * word_bits / 8) + "], %d" +
              std::to_string(i) + ";\n";
    }
    text += "ret;\n}\n";
    const std::vector<uint8_t> output = Run(text, input, d_count * kLanes * word_bits / 8);
    ASSERT_FALSE(output.empty());
    const WholeMatrix want =
        ProductOf(left, right, start, std::string_view(form.ending).starts_with(".xor"));
    int wrong = 0;
    for (uint32_t lane = 0; lane < kLanes; ++lane) {
      for (uint32_t i = 0; i < sums; ++i) {
        const Position place = PositionInC(lane, i);
        const uint64_t got = GetBits(
            output, (uint64_t{i / d_per} * kLanes + lane) * word_bits + i % d_per * d.bits, d.bits);
        wrong += got != Encode(d, want.At(place.row, place.column)) ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0) << "elements";
  }
}

// --- wmma -----------------------------------------------------------------------------------------

struct WmmaForm {
  Form form;
  uint32_t a_count, b_count, c_count, d_count;  // registers
  const char *a_order = "row", *b_order = "col", *c_order = "row", *d_order = "row";
  const char* space = "";  // of A and B
};

constexpr WmmaForm kWmmaForms[] = {
    {{16, 16, 16, "f32", "f16", "f16", "f32"}, 8, 8, 8, 8},
    {{16, 16, 16, "f32", "f16", "f16", "f32"}, 8, 8, 8, 8, "row", "row", "row", "row", ".global"},
    {{16, 16, 16, "f32", "f16", "f16", "f32"}, 8, 8, 8, 8, "col", "col", "col", "row", ".shared"},
    {{16, 16, 16, "f16", "f16", "f16", "f16"}, 8, 8, 4, 4, "col", "row", "row", "col", ".global"},
    {{16, 16, 16, "f32", "f16", "f16", "f16"}, 8, 8, 4, 8},
    {{16, 16, 16, "f16", "f16", "f16", "f32"}, 8, 8, 8, 4},
    {{32, 8, 16, "f32", "f16", "f16", "f32"}, 8, 8, 8, 8, "row", "row", "col", "row"},
    {{8, 32, 16, "f16", "f16", "f16", "f16"}, 8, 8, 4, 4, "col", "col", "row", "col", ".shared"},
    {{16, 16, 16, "f32", "bf16", "bf16", "f32"}, 4, 4, 8, 8, "row", "row"},
    {{32, 8, 16, "f32", "bf16", "bf16", "f32"}, 8, 2, 8, 8},
    {{8, 32, 16, "f32", "bf16", "bf16", "f32"}, 2, 8, 8, 8, "col", "row", "row", "row", ".shared"},
    {{16, 16, 8, "f32", "tf32", "tf32", "f32"}, 4, 4, 8, 8},
    {{16, 16, 8, "f32", "tf32", "tf32", "f32"}, 4, 4, 8, 8, "col", "row", "col", "col"},
    {{8, 8, 4, "f64", "f64", "f64", "f64"}, 1, 1, 2, 2},
    {{8, 8, 4, "f64", "f64", "f64", "f64"}, 1, 1, 2, 2, "col", "row", "col", "row", ".shared"},
    {{16, 16, 16, "s32", "s8", "s8", "s32"}, 2, 2, 8, 8},
    {{32, 8, 16, "s32", "u8", "u8", "s32"}, 4, 1, 8, 8, "col", "row", "row", "row", ".shared"},
    {{8, 32, 16, "s32", "s8", "s8", "s32"}, 1, 4, 8, 8, "row", "row", "col", "col", ".global"},
    {{8, 8, 32, "s32", "s4", "s4", "s32"}, 1, 1, 2, 2},
    {{8, 8, 32, "s32", "u4", "u4", "s32"}, 1, 1, 2, 2},
    {{8, 8, 128, "s32", "b1", "b1", "s32"}, 1, 1, 2, 2},
};

// A matrix with a gap of 16 bytes behind each row, or column.
struct Layout {
  Layout(const MatrixType& t, const WholeMatrix& matrix, std::string_view order)
      : type(t), by_columns(order == "col") {
    stride = (by_columns ? matrix.rows : matrix.columns) + 128 / type.bits;
    bytes = uint64_t{stride} * (by_columns ? matrix.columns : matrix.rows) * type.bits / 8;
    bytes = (bytes + 127) / 128 * 128;
  }
  [[nodiscard]] uint64_t BitOf(uint32_t row, uint32_t column) const {
    return (by_columns ? uint64_t{column} * stride + row : uint64_t{row} * stride + column) *
           type.bits;
  }
  void Put(const WholeMatrix& matrix, uint64_t at, std::vector<uint8_t>* image) const {
    for (uint32_t i = 0; i < matrix.rows; ++i) {
      for (uint32_t j = 0; j < matrix.columns; ++j) {
        PutBits(image, 8 * at + BitOf(i, j), type.bits, Encode(type, matrix.At(i, j)));
      }
    }
  }
  const MatrixType& type;
  bool by_columns;
  uint32_t stride = 0;  // elements
  uint64_t bytes = 0;
};

TEST_F(Matrices, Wmma) {
  for (const WmmaForm& wmma : kWmmaForms) {
    const Form& form = wmma.form;
    SCOPED_TRACE(NameOf(form) + " " + wmma.a_order + " " + wmma.b_order + " " + wmma.c_order + " " +
                 wmma.d_order + wmma.space);
    const MatrixType &d = TypeNamed(form.d), &a = TypeNamed(form.a), &b = TypeNamed(form.b),
                     &c = TypeNamed(form.c);
    const WholeMatrix left = MatrixOf(a, form.m, form.k, 4);
    const WholeMatrix right = MatrixOf(b, form.k, form.n, 5);
    const WholeMatrix start = MatrixOf(c, form.m, form.n, 6);
    const Layout in_a(a, left, wmma.a_order), in_b(b, right, wmma.b_order),
        in_c(c, start, wmma.c_order), in_d(d, start, wmma.d_order);
    std::vector<uint8_t> input(in_a.bytes + in_b.bytes + in_c.bytes);
    in_a.Put(left, 0, &input);
    in_b.Put(right, in_a.bytes, &input);
    in_c.Put(start, in_a.bytes + in_b.bytes, &input);

    const std::string shape =
        "m" + std::to_string(form.m) + "n" + std::to_string(form.n) + "k" + std::to_string(form.k);
    std::string text =
        Beginning(d.bits == 64 ? 64 : 32, wmma.a_count, wmma.b_count, wmma.c_count, wmma.d_count);
    // Everything into shared memory too, word by word.
    text +=
        "shl.b32 %at, %lane, 2;\nmov.u32 %word, stage;\nadd.u32 %word, %word, %at;\n"
        "cvt.u64.u32 %out, %at;\nadd.u64 %in, %in, %out;\n"
        "COPY:\n{ .reg .b32 %value;\nld.global.b32 %value, [%in];\n"
        "st.shared.b32 [%word], %value; }\nadd.u64 %in, %in, 128;\nadd.u32 %word, %word, 128;\n"
        "add.u32 %at, %at, 128;\nsetp.lt.u32 %more, %at, " +
        std::to_string(input.size()) +
        ";\n@%more bra COPY;\nbar.sync 0;\nld.param.u64 %in, [in];\nld.param.u64 %out, [out];\n";
    uint64_t at = 0;
    const auto load = [&](char name, uint32_t count, const Layout& layout, const char* order,
                          std::string space) {
      text += "wmma.load." + std::string(1, name) + ".sync.aligned." + order + "." + shape + space +
              "." + std::string(layout.type.name) + " " + RegisterList(name, count) + ", [" +
              (space == ".shared" ? "stage" : "%in") + "+" + std::to_string(at) + "], " +
              std::to_string(layout.stride) + ";\n";
      at += layout.bytes;
    };
    load('a', wmma.a_count, in_a, wmma.a_order, wmma.space);
    load('b', wmma.b_count, in_b, wmma.b_order, wmma.space);
    load('c', wmma.c_count, in_c, wmma.c_order, "");
    const bool is_bit = a.bits == 1;
    text += "wmma.mma" + std::string(is_bit ? ".xor.popc" : "") + ".sync.aligned." + wmma.a_order +
            "." + wmma.b_order + "." + shape + "." + form.d +
            (a.name == "f16" ? "" : std::string(".") + form.a + "." + form.b) + "." + form.c + " " +
            RegisterList('d', wmma.d_count) + ", " + RegisterList('a', wmma.a_count) + ", " +
            RegisterList('b', wmma.b_count) + ", " + RegisterList('c', wmma.c_count) +
            ";\nwmma.store.d.sync.aligned." + wmma.d_order + "." + shape + "." + form.d +
            " [%out], " + RegisterList('d', wmma.d_count) + ", " + std::to_string(in_d.stride) +
            ";\nret;\n}\n";
    const std::vector<uint8_t> output = Run(text, input, in_d.bytes);
    ASSERT_FALSE(output.empty());
    const WholeMatrix want = ProductOf(left, right, start, is_bit);
    int wrong = 0;
    for (uint32_t i = 0; i < form.m; ++i) {
      for (uint32_t j = 0; j < form.n; ++j) {
        wrong += GetBits(output, in_d.BitOf(i, j), d.bits) != Encode(d, want.At(i, j)) ? 1 : 0;
      }
    }
    EXPECT_EQ(wrong, 0) << "elements";
    // What lies behind the rows stays as it was.
    EXPECT_EQ(output[in_d.BitOf(in_d.by_columns ? form.m : 0, in_d.by_columns ? 0 : form.n) / 8],
              0xee);
  }
}

}  // namespace
}  // namespace gpuloom::conformance
