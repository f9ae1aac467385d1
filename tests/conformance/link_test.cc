// SPDX-License-Identifier: Apache-2.0
// Linking: texts that name each other's functions and variables become one image.
#include <cstring>
#include <string>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr char kCaller[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b32 result) twice (.param .b32 x);
.extern .global .align 4 .u32 shared_word;
.global .align 4 .u32 hidden = 5;
.visible .entry call(.param .u64 out)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  ld.global.u32 %r1, [shared_word];
  ld.global.u32 %r4, [hidden];
  add.u32 %r1, %r1, %r4;
  {
    .param .b32 p;
    .param .b32 q;
    st.param.b32 [p], %r1;
    call.uni (q), twice, (p);
    ld.param.b32 %r2, [q];
  }
  st.global.u32 [%rd1], %r2;
  ret;
}
)PTX";

constexpr char kCallee[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64
.visible .global .align 4 .u32 shared_word = 100;
.global .align 4 .u32 hidden = 1000;
.visible .func (.param .b32 result) twice (.param .b32 x)
{
  .reg .b32 %r<5>;
  ld.param.b32 %r1, [x];
  ld.global.u32 %r2, [hidden];
  mad.lo.u32 %r3, %r1, 2, %r2;
  st.param.b32 [result], %r3;
  ret;
}
)PTX";

class Linking : public WithContext {
 protected:
  CUresult Add(CUlinkState link, const char* text) {
    return Cu().cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, const_cast<char*>(text),
                                 std::strlen(text) + 1, "part", 0, nullptr, nullptr);
  }
};

TEST_F(Linking, TwoTexts) {
  CUlinkState link = nullptr;
  ASSERT_EQ(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &link), CUDA_SUCCESS);
  ASSERT_EQ(Add(link, kCaller), CUDA_SUCCESS);
  ASSERT_EQ(Add(link, kCallee), CUDA_SUCCESS);
  void* image = nullptr;
  size_t size = 0;
  ASSERT_EQ(Cu().cuLinkComplete(link, &image, &size), CUDA_SUCCESS);
  EXPECT_GT(size, 0u);
  CUmodule module = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&module, image), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuLinkDestroy(link), CUDA_SUCCESS);
  CUfunction call = nullptr;
  ASSERT_EQ(Cu().cuModuleGetFunction(&call, module, "call"), CUDA_SUCCESS);
  const CUdeviceptr out = Alloc(4);
  ASSERT_EQ(Launch(call, 1, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 1)[0], 2u * (100 + 5) + 1000);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(Linking, ErrorsAreTold) {
  char log[2048] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_OPTIMIZATION_LEVEL};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log)), reinterpret_cast<void*>(3)};
  CUlinkState link = nullptr;
  ASSERT_EQ(Cu().cuLinkCreate_v2(3, options, values, &link), CUDA_SUCCESS);
  EXPECT_EQ(Add(link, ".version 8.0\n.target sm_70\n.address_size 64\n.nonsense\n"),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log), "");
  EXPECT_EQ(Cu().cuLinkDestroy(link), CUDA_SUCCESS);
}

TEST_F(Linking, WrongCalls) {
  EXPECT_EQ(Cu().cuLinkCreate_v2(0, nullptr, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  CUlinkState link = nullptr;
  ASSERT_EQ(Cu().cuLinkCreate_v2(0, nullptr, nullptr, &link), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/nowhere/at.ptx", 0, nullptr, nullptr),
            CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(Cu().cuLinkDestroy(link), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
