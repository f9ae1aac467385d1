// SPDX-License-Identifier: Apache-2.0
// `__managed__` variables: one address for host and kernels, initial values, and what a wrong
// question is told.
#include <cstring>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

constexpr char kManaged[] = R"(
.version 8.0
.target sm_70
.address_size 64

.visible .global .attribute(.managed) .align 4 .u32 counter = 5;
.global .attribute(.managed) .align 4 .b8 table[1024];
.visible .global .align 4 .u32 plain = 9;

.visible .entry count(.param .u32 by)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<2>;
  ld.param.u32 %r1, [by];
  mov.u64 %rd1, counter;
  atom.global.add.u32 %r2, [%rd1], %r1;
  ret;
}

.visible .entry fill_table()
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  mov.u64 %rd1, table;
  mul.wide.u32 %rd2, %r1, 4;
  add.u64 %rd3, %rd1, %rd2;
  ld.global.u32 %r2, [%rd3];
  ld.global.u32 %r3, [plain];
  add.u32 %r2, %r2, %r1;
  add.u32 %r2, %r2, %r3;
  st.global.u32 [%rd3], %r2;
  ret;
}
)";

class ManagedVariables : public WithContext {
 protected:
  void SetUp() override {
    ASSERT_NO_FATAL_FAILURE(WithContext::SetUp());
    ASSERT_EQ(Cu().cuLibraryLoadData(&library_, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0),
              CUDA_SUCCESS);
  }
  void TearDown() override {
    if (library_ != nullptr) {
      EXPECT_EQ(Cu().cuLibraryUnload(library_), CUDA_SUCCESS);
    }
    WithContext::TearDown();
  }
  uint32_t* Find(const char* name, size_t* size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(Cu().cuLibraryGetManaged(&address, size, library_, name), CUDA_SUCCESS);
    return reinterpret_cast<uint32_t*>(address);
  }
  CUfunction Function(const char* name) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(Cu().cuLibraryGetKernel(&kernel, library_, name), CUDA_SUCCESS);
    return reinterpret_cast<CUfunction>(kernel);
  }
  CUlibrary library_ = nullptr;
};

TEST_F(ManagedVariables, HostAndKernelsShareThem) {
  size_t size = 0;
  uint32_t* counter = Find("counter", &size);
  ASSERT_NE(counter, nullptr);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(*counter, 5u);
  *counter = 10;
  ASSERT_EQ(Launch(Function("count"), 2, 32, nullptr, 1u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*counter, 74u);

  uint32_t* table = Find("table", &size);
  ASSERT_NE(table, nullptr);
  EXPECT_EQ(size, 1024u);
  for (uint32_t i = 0; i < 256; ++i) {
    EXPECT_EQ(table[i], 0u);
    table[i] = 1000;
  }
  ASSERT_EQ(Launch(Function("fill_table"), 1, 256, nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  for (uint32_t i = 0; i < 256; ++i) ASSERT_EQ(table[i], 1009 + i);

  // Copies and fills by the driver, too.
  ASSERT_EQ(Cu().cuMemsetD32_v2(reinterpret_cast<CUdeviceptr>(table), 7, 16), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(reinterpret_cast<CUdeviceptr>(table), 17)[15], 7u);
  EXPECT_EQ(table[16], 1025u);
}

TEST_F(ManagedVariables, EachLoadHasItsOwn) {
  CUlibrary second = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&second, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUdeviceptr theirs = 0;
  ASSERT_EQ(Cu().cuLibraryGetManaged(&theirs, nullptr, second, "counter"), CUDA_SUCCESS);
  size_t size = 0;
  uint32_t* mine = Find("counter", &size);
  ASSERT_NE(mine, nullptr);
  *mine = 1;
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(theirs), 5u);
  ASSERT_EQ(Cu().cuLibraryUnload(second), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("count"), 1, 1, nullptr, 4u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*mine, 5u);
}

// CUDA's runtime asks for them before it has a context.
TEST_F(ManagedVariables, NeedNoContext) {
  CUcontext context = nullptr;
  ASSERT_EQ(Cu().cuCtxPopCurrent_v2(&context), CUDA_SUCCESS);
  CUlibrary early = nullptr;
  CUdeviceptr address = 0;
  size_t size = 0;
  EXPECT_EQ(Cu().cuLibraryLoadData(&early, kManaged, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, early, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, early, "counter"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxPushCurrent_v2(context), CUDA_SUCCESS);
  ASSERT_NE(address, 0u);
  EXPECT_EQ(size, 4u);
  auto* counter = reinterpret_cast<uint32_t*>(address);
  EXPECT_EQ(*counter, 5u);
  *counter = 10;
  CUkernel count = nullptr;
  ASSERT_EQ(Cu().cuLibraryGetKernel(&count, early, "count"), CUDA_SUCCESS);
  ASSERT_EQ(Launch(reinterpret_cast<CUfunction>(count), 1, 1, nullptr, 3u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*counter, 13u);
  EXPECT_EQ(Cu().cuLibraryUnload(early), CUDA_SUCCESS);
}

TEST_F(ManagedVariables, AreVariablesOfTheModule) {
  CUmodule module = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&module, kManaged), CUDA_SUCCESS);
  CUdeviceptr counter = 0;
  size_t size = 0;
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&counter, &size, module, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  CUfunction count = nullptr;
  ASSERT_EQ(Cu().cuModuleGetFunction(&count, module, "count"), CUDA_SUCCESS);
  *reinterpret_cast<uint32_t*>(counter) = 100;
  ASSERT_EQ(Launch(count, 1, 32, nullptr, 2u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  EXPECT_EQ(*reinterpret_cast<uint32_t*>(counter), 164u);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(ManagedVariables, WrongCalls) {
  CUdeviceptr address = 0;
  size_t size = 0;
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, library_, "nothing"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, library_, "plain"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, nullptr, library_, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLibraryGetManaged(nullptr, &size, library_, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuLibraryGetManaged(nullptr, nullptr, library_, "counter"),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, library_, nullptr), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLibraryGetManaged(&address, &size, nullptr, "counter"),
            CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(Cu().cuLibraryGetManaged(&address, &size, library_, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuMemFree_v2(address), CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
