// SPDX-License-Identifier: Apache-2.0
// What tensor maps do: boxes of tensors of every rank to shared memory and back, in every swizzling, with
// places outside of the tensor, and sums instead of copies.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr uint32_t kMaxRank = 5;
constexpr uint32_t kThreads = 32;
constexpr uint32_t kPatternBytes = 1024;  // after which the widest swizzling repeats

struct Form {
  CUtensorMapDataType type = CU_TENSOR_MAP_DATA_TYPE_UINT32;
  uint32_t element_bytes = 4;
  uint32_t rank = 2;
  uint64_t dimensions[kMaxRank] = {1, 1, 1, 1, 1};
  uint32_t box[kMaxRank] = {1, 1, 1, 1, 1};
  uint32_t strides[kMaxRank] = {1, 1, 1, 1, 1};  // elements from one to the next in the box
  int32_t at[kMaxRank] = {};
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  bool fills_with_nan = false;
};

// The innermost place is a multiple of 16 bytes, which hardware insists on.
constexpr Form kForms[] = {
    {.rank = 1, .dimensions = {256}, .box = {64}, .at = {32}},
    {.rank = 1, .dimensions = {100}, .box = {64}, .at = {60}},
    {.dimensions = {64, 32}, .box = {32, 8}, .at = {16, 5}},
    // Beyond every edge.
    {.dimensions = {64, 32}, .box = {32, 8}, .at = {-4, -3}},
    {.dimensions = {64, 32}, .box = {32, 8}, .at = {48, 28}},
    {.dimensions = {64, 32}, .box = {32, 8}, .at = {64, 0}},
    {.dimensions = {64, 32}, .box = {8, 16}, .at = {8, 3}, .swizzle = CU_TENSOR_MAP_SWIZZLE_32B},
    {.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
     .element_bytes = 2,
     .dimensions = {96, 40},
     .box = {32, 32},
     .at = {32, 4},
     .swizzle = CU_TENSOR_MAP_SWIZZLE_64B},
    {.type = CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
     .element_bytes = 2,
     .dimensions = {128, 64},
     .box = {64, 64},
     .at = {64, 1},
     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B},
    {.type = CU_TENSOR_MAP_DATA_TYPE_UINT8,
     .element_bytes = 1,
     .dimensions = {256, 24},
     .box = {128, 16},
     .at = {144, 12},
     .swizzle = CU_TENSOR_MAP_SWIZZLE_128B},
    {.type = CU_TENSOR_MAP_DATA_TYPE_INT64,
     .element_bytes = 8,
     .rank = 3,
     .dimensions = {20, 6, 4},
     .box = {8, 4, 2},
     .at = {14, 3, 3}},
    {.rank = 4, .dimensions = {16, 5, 4, 3}, .box = {8, 3, 2, 2}, .at = {4, 1, 3, -1}},
    {.rank = 5, .dimensions = {8, 4, 3, 3, 2}, .box = {4, 2, 2, 2, 2}, .at = {0, 3, 0, 1, 1}},
    // Every second row.
    {.dimensions = {32, 32}, .box = {16, 8}, .strides = {1, 2}, .at = {8, 5}},
    {.type = CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
     .dimensions = {32, 8},
     .box = {16, 8},
     .at = {24, 4},
     .fills_with_nan = true},
};

// The box in shared memory, element by element: f(its place in bytes, in the tensor or -1).
template <class F>
void ForEachElement(const Form& form, F f) {
  uint32_t counts[kMaxRank], total = 1;
  for (uint32_t i = 0; i < kMaxRank; ++i) {
    counts[i] = i < form.rank ? (form.box[i] + form.strides[i] - 1) / form.strides[i] : 1;
    total *= counts[i];
  }
  for (uint32_t number = 0; number < total; ++number) {
    uint32_t rest = number;
    int64_t element = 0, step = 1;
    bool inside = true;
    for (uint32_t i = 0; i < form.rank; ++i) {
      const int64_t at = form.at[i] + int64_t{rest % counts[i]} * form.strides[i];
      inside &= at >= 0 && at < static_cast<int64_t>(form.dimensions[i]);
      element += at * step;
      step *= static_cast<int64_t>(form.dimensions[i]);
      rest /= counts[i];
    }
    uint32_t byte = number * form.element_bytes;
    const uint32_t span = form.swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? 1u : 1u << form.swizzle;
    byte ^= byte / 128 % span * 16;
    f(byte, inside ? element : -1);
  }
}

uint32_t BoxBytes(const Form& form) {
  uint32_t bytes = 0;
  ForEachElement(form, [&](uint32_t, int64_t) { bytes += form.element_bytes; });
  return bytes;
}

// Kernel "test" of a map and of the box's bytes in global memory, which it fills shared memory from or
// writes what it finds there. `instruction` has Nd for the rank; one thread executes it.
std::string TextOf(const Form& form, std::string_view instruction, bool loads, bool prefetches) {
  std::string place = "{";
  for (uint32_t i = 0; i < form.rank; ++i) {
    place += (i == 0 ? "%c" : ", %c") + std::to_string(i);
  }
  place += "}";
  std::string text =
      ".version 8.4\n.target sm_90\n.address_size 64\n.extern .shared .align 128 .b8 stage[];\n"
      ".visible .entry test(.param .align 64 .b8 map[128], .param .u64 data) {\n"
      ".shared .align 8 .b64 barrier;\n.reg .b32 %self, %shared, %barrier, %at, %to, %word;\n"
      ".reg .b32 %c<5>;\n.reg .b64 %map, %data, %from, %wide, %state;\n"
      ".reg .pred %more, %first, %done;\n"
      "mov.b64 %map, map;\ncvta.param.u64 %map, %map;\nld.param.u64 %data, [data];\n"
      "mov.u32 %self, %tid.x;\nsetp.eq.u32 %first, %self, 0;\nmov.u32 %shared, stage;\n"
      "add.u32 %shared, %shared, 1023;\nand.b32 %shared, %shared, 0xfffffc00;\n"
      "mov.u32 %barrier, barrier;\n@%first mbarrier.init.shared.b64 [barrier], 1;\n"
      "shl.b32 %at, %self, 2;\n";
  const std::string next = "add.u32 %at, %at, " + std::to_string(4 * kThreads) +
                           ";\nsetp.lt.u32 %more, %at, " + std::to_string(BoxBytes(form)) + ";\n";
  const std::string places =
      "add.u32 %to, %shared, %at;\ncvt.u64.u32 %wide, %at;\nadd.u64 %from, %data, %wide;\n";
  if (prefetches) text += "prefetch.tensormap [%map];\n";
  if (!loads) {
    text += "FILL:\n" + places + "ld.global.b32 %word, [%from];\nst.shared.b32 [%to], %word;\n" +
            next + "@%more bra FILL;\n";
  }
  text += "fence.proxy.async;\nfence.mbarrier_init.release.cluster;\nbar.sync 0;\n";
  for (uint32_t i = 0; i < form.rank; ++i) {
    text += "mov.b32 %c" + std::to_string(i) + ", " + std::to_string(form.at[i]) + ";\n";
  }
  text += "@!%first bra WAIT;\n";
  const std::string rank = std::to_string(form.rank) + "d";
  const auto named = [&](std::string name) { return name.replace(name.find("Nd"), 2, rank); };
  if (loads) {
    text += "mbarrier.arrive.expect_tx.shared.b64 %state, [barrier], " +
            std::to_string(BoxBytes(form)) + ";\n" + named(std::string(instruction)) +
            " [%shared], [%map, " + place + "], [%barrier];\n" +
            "WAIT:\nmbarrier.try_wait.parity.shared.b64 %done, [barrier], 0;\n@!%done bra WAIT;\n"
            "shl.b32 %at, %self, 2;\nTAKE:\n" +
            places + "ld.shared.b32 %word, [%to];\nst.global.b32 [%from], %word;\n" + next +
            "@%more bra TAKE;\n";
  } else {
    text += named(std::string(instruction)) + " [%map, " + place +
            "], [%shared];\ncp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nWAIT:\n";
  }
  return text + "ret;\n}\n";
}

class TensorCopies : public WithContext {
 protected:
  void SetUp() override {
    if (IsDriverBelow(12040)) GTEST_SKIP() << "the cases are PTX 8.4";
    if (IsDeviceBelow(90)) GTEST_SKIP() << "sm_90 has it first";
    WithContext::SetUp();
    int major = 0;
    ASSERT_EQ(
        Cu().cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device_),
        CUDA_SUCCESS);
    if (major != 9) GTEST_SKIP() << "kernels for compute capability 9.0 only";
  }

  // Bytes of the whole tensor, each different from those around it, as numbers of the type.
  static std::vector<uint8_t> TensorOf(const Form& form, uint32_t seed) {
    uint64_t count = 1;
    for (uint32_t i = 0; i < form.rank; ++i) count *= form.dimensions[i];
    std::vector<uint8_t> bytes(count * form.element_bytes);
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t value = (i + 1) * 37 % 255 + 1 + seed;  // small: never a number that is none
      std::memcpy(&bytes[i * form.element_bytes], &value, form.element_bytes);
    }
    return bytes;
  }

  void Run(const Form& form, CUdeviceptr tensor, CUdeviceptr data, const std::string& text) {
    CUtensorMap map;
    cuuint64_t dimensions[kMaxRank], strides[kMaxRank] = {};
    cuuint32_t box[kMaxRank], element_strides[kMaxRank];
    uint64_t bytes = form.element_bytes;
    for (uint32_t i = 0; i < form.rank; ++i) {
      dimensions[i] = form.dimensions[i];
      box[i] = form.box[i];
      element_strides[i] = form.strides[i];
      bytes *= form.dimensions[i];
      strides[i] = bytes;
    }
    ASSERT_EQ(Cu().cuTensorMapEncodeTiled(
                  &map, form.type, form.rank, reinterpret_cast<void*>(tensor), dimensions, strides,
                  box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, form.swizzle,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE,
                  form.fills_with_nan ? CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA
                                      : CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
              CUDA_SUCCESS);
    CUmodule module = nullptr;
    ASSERT_EQ(Cu().cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS) << text;
    CUfunction function = nullptr;
    ASSERT_EQ(Cu().cuModuleGetFunction(&function, module, "test"), CUDA_SUCCESS);
    void* parameters[] = {&map, &data};
    ASSERT_EQ(Cu().cuLaunchKernel(function, 1, 1, 1, kThreads, 1, 1, BoxBytes(form) + kPatternBytes,
                                  nullptr, parameters, nullptr),
              CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  }
};

// One form each: what hardware refuses ends the context.
class TensorBoxes : public TensorCopies, public testing::WithParamInterface<uint32_t> {
 protected:
  const Form& form() const { return kForms[GetParam()]; }
  bool prefetches() const { return GetParam() % 2 == 1; }
};

TEST_P(TensorBoxes, Load) {
  const std::vector<uint8_t> tensor = TensorOf(form(), GetParam());
  const uint32_t bytes = BoxBytes(form());
  const CUdeviceptr in = Alloc(tensor.size()), out = Alloc(bytes);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(in, tensor.data(), tensor.size()), CUDA_SUCCESS);
  Run(form(), in, out,
      TextOf(form(),
             "cp.async.bulk.tensor.Nd.shared::cluster.global.tile.mbarrier::complete_tx::bytes",
             true, prefetches()));
  if (HasFatalFailure()) return;
  const std::vector<uint8_t> got = Download<uint8_t>(out, bytes);
  int wrong = 0;
  ForEachElement(form(), [&](uint32_t byte, int64_t element) {
    if (element >= 0) {
      wrong += std::memcmp(&got[byte], &tensor[element * form().element_bytes],
                           form().element_bytes) != 0;
      return;
    }
    uint64_t value = 0;
    std::memcpy(&value, &got[byte], form().element_bytes);
    wrong += value != (form().fills_with_nan ? 0x7ff77ff7u : 0u);
  });
  EXPECT_EQ(wrong, 0) << "elements";
}

class StoredTensorBoxes : public TensorBoxes {};

TEST_P(StoredTensorBoxes, Store) {
  std::vector<uint8_t> tensor = TensorOf(form(), GetParam());
  std::vector<uint8_t> box(BoxBytes(form()));
  for (size_t i = 0; i < box.size(); ++i) box[i] = static_cast<uint8_t>(i * 13 + 7);
  const CUdeviceptr out = Alloc(tensor.size()), in = Alloc(box.size());
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(out, tensor.data(), tensor.size()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(in, box.data(), box.size()), CUDA_SUCCESS);
  Run(form(), out, in,
      TextOf(form(), "cp.async.bulk.tensor.Nd.global.shared::cta.bulk_group", false, false));
  if (HasFatalFailure()) return;
  ForEachElement(form(), [&](uint32_t byte, int64_t element) {
    if (element < 0) return;
    std::memcpy(&tensor[element * form().element_bytes], &box[byte], form().element_bytes);
  });
  EXPECT_EQ(Download<uint8_t>(out, tensor.size()), tensor);
}

// A box that is stored may reach beyond the end, but does not begin before the beginning; only loads fill.
std::vector<uint32_t> StoredForms() {
  std::vector<uint32_t> numbers;
  for (uint32_t i = 0; i < std::size(kForms); ++i) {
    const Form& form = kForms[i];
    const bool begins_inside =
        std::all_of(std::begin(form.at), std::end(form.at), [](int32_t at) { return at >= 0; });
    if (begins_inside && !form.fills_with_nan) numbers.push_back(i);
  }
  return numbers;
}

INSTANTIATE_TEST_SUITE_P(Forms, StoredTensorBoxes, testing::ValuesIn(StoredForms()));
INSTANTIATE_TEST_SUITE_P(Forms, TensorBoxes,
                         testing::Range(0u, static_cast<uint32_t>(std::size(kForms))));

TEST_F(TensorCopies, AddABox) {
  Form form = {.dimensions = {64, 16}, .box = {32, 8}, .at = {48, 12}};
  const std::vector<uint8_t> tensor = TensorOf(form, 0);
  std::vector<uint32_t> sums(tensor.size() / 4), box(BoxBytes(form) / 4);
  std::memcpy(sums.data(), tensor.data(), tensor.size());
  for (size_t i = 0; i < box.size(); ++i) box[i] = static_cast<uint32_t>(i * 1000);
  const CUdeviceptr out = Alloc(tensor.size()), in = Alloc(box.size() * 4);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(out, tensor.data(), tensor.size()), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(in, box.data(), box.size() * 4), CUDA_SUCCESS);
  Run(form, out, in,
      TextOf(form, "cp.reduce.async.bulk.tensor.Nd.global.shared::cta.add.tile.bulk_group", false,
             false));
  if (HasFatalFailure()) return;
  ForEachElement(form, [&](uint32_t byte, int64_t element) {
    if (element >= 0) sums[element] += box[byte / 4];
  });
  EXPECT_EQ(Download<uint32_t>(out, sums.size()), sums);
}

// A map made of zeros in shared memory, field by field, and copied to global memory for use.
constexpr char kMakeAMap[] = R"PTX(
.version 8.5
.target sm_90a
.address_size 64

.visible .entry test(.param .u64 map, .param .u64 tensor, .param .u64 out)
{
  .reg .b32 %self, %at, %word, %map, %c<2>;
  .reg .b64 %global, %tensor, %out, %state;
  .reg .pred %first, %done;
  .shared .align 1024 .b8 box[1024];
  .shared .align 128 .b8 made[128];
  .shared .align 8 .b64 barrier;
  ld.param.u64 %global, [map];
  ld.param.u64 %tensor, [tensor];
  ld.param.u64 %out, [out];
  mov.u32 %self, %tid.x;
  setp.eq.u32 %first, %self, 0;
  mov.u32 %map, made;
  mad.lo.u32 %at, %self, 4, %map;
  st.shared.b32 [%at], 0;
  @%first mbarrier.init.shared.b64 [barrier], 1;
  fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%first bra MADE;
  tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%map], %tensor;
  tensormap.replace.tile.rank.shared::cta.b1024.b32 [%map], 1;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%map], 0, 32;
  tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%map], 1, 8;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%map], 0, 64;
  tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%map], 1, 16;
  tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%map], 0, 256;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%map], 0, 1;
  tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%map], 1, 1;
  tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%map], 2;
  tensormap.replace.tile.interleave_layout.shared::cta.b1024.b32 [%map], 0;
  tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%map], 3;
  tensormap.replace.tile.fill_mode.shared::cta.b1024.b32 [%map], 0;
MADE:
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%global], [%map], 128;
  bar.sync 0;
  @!%first bra WAIT;
  fence.proxy.tensormap::generic.acquire.gpu [%global], 128;
  mov.u32 %c0, 48;
  mov.u32 %c1, 4;
  mbarrier.arrive.expect_tx.shared.b64 %state, [barrier], 1024;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [box], [%global, {%c0, %c1}], [barrier];
WAIT:
  mbarrier.try_wait.parity.shared.b64 %done, [barrier], 0;
  @!%done bra WAIT;
  mov.u32 %at, box;
  mad.lo.u32 %at, %self, 4, %at;
  mad.wide.u32 %out, %self, 4, %out;
  mov.u32 %c0, 0;
TAKE:
  ld.shared.b32 %word, [%at];
  st.global.b32 [%out], %word;
  add.u32 %at, %at, 128;
  add.u64 %out, %out, 128;
  add.u32 %c0, %c0, 1;
  setp.lt.u32 %done, %c0, 8;
  @%done bra TAKE;
  ret;
}
)PTX";

TEST_F(TensorCopies, AMapMadeByAKernel) {
  if (IsDriverBelow(12050)) GTEST_SKIP() << "the kernel is PTX 8.5";
  if (!IsDevice(90)) GTEST_SKIP() << "the kernel is made for sm_90a";
  const Form form = {
      .dimensions = {64, 16}, .box = {32, 8}, .at = {48, 4}, .swizzle = CU_TENSOR_MAP_SWIZZLE_128B};
  const std::vector<uint8_t> tensor = TensorOf(form, 0);
  const uint32_t bytes = BoxBytes(form);
  CUdeviceptr map = Alloc(128), in = Alloc(tensor.size()), out = Alloc(bytes);
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(in, tensor.data(), tensor.size()), CUDA_SUCCESS);
  CUmodule module = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&module, kMakeAMap), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(Cu().cuModuleGetFunction(&function, module, "test"), CUDA_SUCCESS);
  ASSERT_EQ(Launch(function, 1, kThreads, nullptr, map, in, out), CUDA_SUCCESS);
  const std::vector<uint8_t> got = Download<uint8_t>(out, bytes);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  int wrong = 0;
  ForEachElement(form, [&](uint32_t byte, int64_t element) {
    uint32_t value = 0, want = 0;
    std::memcpy(&value, &got[byte], sizeof(value));
    if (element >= 0) std::memcpy(&want, &tensor[element * sizeof(want)], sizeof(want));
    wrong += value != want;
  });
  EXPECT_EQ(wrong, 0) << "elements";
}

}  // namespace
}  // namespace gpuloom::conformance
