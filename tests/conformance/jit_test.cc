// SPDX-License-Identifier: Apache-2.0
// What a program wants of the JIT and hears from it: options of loads and links. The texts are the compiler's
// own, so only that they are there is compared.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// A text that nobody has compiled before: drivers keep what they have made.
std::string Text() {
  static std::atomic<int> count{0};
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  const std::string salt =
      std::to_string(getpid()) + "_" + std::to_string(now) + "_" + std::to_string(++count);
  return ".version 8.0\n.target sm_70\n.address_size 64\n.global .u32 salt_" + salt + R"PTX( = 7;
.visible .entry fill(.param .u64 out)
{
  .reg .b32 %r<3>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, %tid.x;
  mul.wide.u32 %rd2, %r1, 4;
  add.s64 %rd3, %rd1, %rd2;
  add.u32 %r2, %r1, 3;
  st.global.u32 [%rd3], %r2;
  ret;
}
)PTX";
}

constexpr char kWrong[] =
    ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n nonsense.u32 %r1;\n "
    "ret;\n}\n";

// Of CUDA's first years: no address size, no .visible, an ISA that linkers do not take.
constexpr char kOld[] = R"PTX(
	.version 1.4
	.target sm_10, map_f64_to_f32
	.entry fill (
		.param .u64 __cudaparm_fill_out)
	{
	.reg .u32 %r<4>;
	.reg .u64 %rd<5>;
	.loc	1	10	0
$LBB1_fill:
	cvt.u32.u16 	%r1, %tid.x;
	ld.param.u64 	%rd1, [__cudaparm_fill_out];
	mul.wide.u32 	%rd2, %r1, 4;
	add.u64 	%rd3, %rd1, %rd2;
	add.u32 	%r2, %r1, 3;
	st.global.u32 	[%rd3+0], %r2;
	exit;
$LDWend_fill:
	} // fill
)PTX";

// The options of a call, each with the value that CUDA leaves there.
class Options {
 public:
  Options& Add(CUjit_option option, size_t value) {
    names_.push_back(option);
    values_.push_back(reinterpret_cast<void*>(value));
    return *this;
  }
  Options& AddTexts(size_t info_bytes, size_t error_bytes) {
    Add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, info_bytes);
    Add(CU_JIT_INFO_LOG_BUFFER, reinterpret_cast<size_t>(info));
    Add(CU_JIT_ERROR_LOG_BUFFER, reinterpret_cast<size_t>(error));
    return Add(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, error_bytes);
  }
  Options() {
    std::memset(info, '#', sizeof(info));
    std::memset(error, '#', sizeof(error));
  }
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  unsigned count() const { return static_cast<unsigned>(names_.size()); }
  CUjit_option* names() { return names_.data(); }
  void** values() { return values_.data(); }
  size_t Value(CUjit_option option) const {
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i] == option) return reinterpret_cast<size_t>(values_[i]);
    }
    return 0;
  }
  float WallTime() const {
    const auto bits = static_cast<uint32_t>(Value(CU_JIT_WALL_TIME));
    float milliseconds;
    std::memcpy(&milliseconds, &bits, sizeof(bits));
    return milliseconds;
  }

  char info[4096];
  char error[4096];

 private:
  std::vector<CUjit_option> names_;
  std::vector<void*> values_;
};

class Jit : public WithContext {
 protected:
  CUresult Load(const char* text, Options& options, CUmodule* module) {
    return Cu().cuModuleLoadDataEx(module, text, options.count(), options.names(),
                                   options.values());
  }
  // Of a load that succeeds.
  void LoadAndRun(const char* text, Options& options) {
    CUmodule module = nullptr;
    ASSERT_EQ(Load(text, options, &module), CUDA_SUCCESS) << options.error;
    CUfunction fill = nullptr;
    ASSERT_EQ(Cu().cuModuleGetFunction(&fill, module, "fill"), CUDA_SUCCESS);
    const CUdeviceptr out = Alloc(32 * 4);
    ASSERT_EQ(Launch(fill, 1, 32, nullptr, out), CUDA_SUCCESS);
    const auto seen = Download<uint32_t>(out, 32);
    for (uint32_t i = 0; i < 32; ++i) ASSERT_EQ(seen[i], i + 3);
    EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  }
};

TEST_F(Jit, TellsTheTimeAndNothingElseUnasked) {
  Options options;
  options.Add(CU_JIT_WALL_TIME, 0).AddTexts(4096, 4096);
  LoadAndRun(Text().c_str(), options);
  EXPECT_GT(options.WallTime(), 0.0F);
  EXPECT_EQ(options.Value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), 0u);
  EXPECT_EQ(options.Value(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES), 0u);
  EXPECT_STREQ(options.info, "");
  EXPECT_STREQ(options.error, "");
  EXPECT_EQ(options.Value(CU_JIT_INFO_LOG_BUFFER), reinterpret_cast<size_t>(options.info));
}

TEST_F(Jit, AVerboseLogNamesTheFunctions) {
  Options options;
  options.AddTexts(4096, 4096).Add(CU_JIT_LOG_VERBOSE, 1);
  LoadAndRun(Text().c_str(), options);
  EXPECT_NE(std::string(options.info).find("fill"), std::string::npos) << options.info;
  EXPECT_EQ(options.Value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), std::strlen(options.info));
}

TEST_F(Jit, ALongTextIsCut) {
  Options options;
  options.AddTexts(20, 4096).Add(CU_JIT_LOG_VERBOSE, 1);
  LoadAndRun(Text().c_str(), options);
  EXPECT_EQ(std::strlen(options.info), 19u);
  EXPECT_EQ(options.Value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), 20u);
  EXPECT_EQ(options.info[20], '#');

  Options shortest;
  shortest.AddTexts(1, 1).Add(CU_JIT_LOG_VERBOSE, 1);
  LoadAndRun(Text().c_str(), shortest);
  EXPECT_STREQ(shortest.info, "");
  EXPECT_EQ(shortest.info[1], '#');
  EXPECT_EQ(shortest.Value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), 0u);
}

TEST_F(Jit, ErrorsAreTold) {
  Options options;
  options.AddTexts(4096, 4096);
  CUmodule module = nullptr;
  EXPECT_EQ(Load(kWrong, options, &module), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(options.error), "");
  EXPECT_EQ(options.Value(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES), std::strlen(options.error));
  // Where nobody wants to hear of it, nothing is heard.
  Options none;
  EXPECT_EQ(Load(kWrong, none, &module), CUDA_ERROR_INVALID_PTX);
}

TEST_F(Jit, ThreadsOfABlockGoInAndOut) {
  Options options;
  options.Add(CU_JIT_THREADS_PER_BLOCK, 512).Add(CU_JIT_WALL_TIME, 0);
  LoadAndRun(Text().c_str(), options);
  EXPECT_EQ(options.Value(CU_JIT_THREADS_PER_BLOCK), 512u);
  Options many;
  many.Add(CU_JIT_THREADS_PER_BLOCK, 2000);
  LoadAndRun(Text().c_str(), many);
  EXPECT_EQ(many.Value(CU_JIT_THREADS_PER_BLOCK), 1024u);
}

TEST_F(Jit, OldTextIsCompiledToo) {
  Options none;
  LoadAndRun(kOld, none);
  Options options;
  options.AddTexts(1024, 1024).Add(CU_JIT_MAX_REGISTERS, 32);
  LoadAndRun(kOld, options);
  EXPECT_STREQ(options.error, "");
}

TEST_F(Jit, ABufferNeedsItsSize) {
  const std::string text = Text();
  CUmodule module = nullptr;
  for (const CUjit_option alone : {CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES}) {
    Options options;
    options.Add(alone, alone == CU_JIT_INFO_LOG_BUFFER ? reinterpret_cast<size_t>(options.info)
                                                       : size_t{100});
    EXPECT_EQ(Load(text.c_str(), options, &module), CUDA_ERROR_INVALID_VALUE) << alone;
    EXPECT_EQ(options.info[0], '#');
  }
  Options without;
  without.Add(CU_JIT_INFO_LOG_BUFFER, 0).Add(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 100);
  EXPECT_EQ(Load(text.c_str(), without, &module), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(without.Value(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES), 100u);
}

TEST_F(Jit, ALinkTellsWhenItIsComplete) {
  Options options;
  options.Add(CU_JIT_WALL_TIME, 0).AddTexts(4096, 4096).Add(CU_JIT_LOG_VERBOSE, 1);
  CUlinkState link = nullptr;
  ASSERT_EQ(Cu().cuLinkCreate_v2(options.count(), options.names(), options.values(), &link),
            CUDA_SUCCESS);
  const std::string text = Text();
  ASSERT_EQ(Cu().cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(text.c_str()),
                                  text.size() + 1, "part", 0, nullptr, nullptr),
            CUDA_SUCCESS);
  void* image = nullptr;
  size_t image_bytes = 0;
  ASSERT_EQ(Cu().cuLinkComplete(link, &image, &image_bytes), CUDA_SUCCESS);
  EXPECT_GT(options.WallTime(), 0.0F);
  EXPECT_NE(std::string(options.info).find("fill"), std::string::npos) << options.info;
  EXPECT_STREQ(options.error, "");
  EXPECT_EQ(Cu().cuLinkDestroy(link), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
