// SPDX-License-Identifier: Apache-2.0
// Memory that kernels allocate: it stays from launch to launch, comes back when it is freed, and has an
// end.
#include <algorithm>

#include "tests/conformance/fixture.h"

namespace gpuloom::conformance {
namespace {

// make(pointers*): each thread allocates 100 bytes, writes its number to the last word of them.
// take(pointers*, out*): each thread reads that, and frees.
// again(out*, rounds): one thread allocates 1 MiB and frees it, round after round; counts the successes.
// huge(out*): 1 TiB, and 0 freed.
constexpr char kText[] = R"PTX(
.version 8.0
.target sm_70
.address_size 64
.extern .func (.param .b64 result) malloc(.param .b64 size);
.extern .func free(.param .b64 address);

.visible .entry make(.param .u64 pointers)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [pointers];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 8, %rd1;
  mov.u64 %rd2, 100;
  {
    .param .b64 size;
    .param .b64 result;
    st.param.b64 [size], %rd2;
    call.uni (result), malloc, (size);
    ld.param.b64 %rd3, [result];
  }
  st.global.u64 [%rd1], %rd3;
  st.u32 [%rd3+96], %r1;
  ret;
}

.visible .entry take(.param .u64 pointers, .param .u64 out)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [pointers];
  ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x;
  mad.wide.u32 %rd1, %r1, 8, %rd1;
  mad.wide.u32 %rd2, %r1, 4, %rd2;
  ld.global.u64 %rd3, [%rd1];
  ld.u32 %r2, [%rd3+96];
  st.global.u32 [%rd2], %r2;
  {
    .param .b64 address;
    st.param.b64 [address], %rd3;
    call.uni free, (address);
  }
  ret;
}

.visible .entry again(.param .u64 out, .param .u32 rounds)
{
  .reg .b32 %r<6>;
  .reg .b64 %rd<6>;
  .reg .pred %p<3>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [rounds];
  mov.u32 %r2, 0;
  mov.u32 %r3, 0;
  mov.u64 %rd2, 1048576;
NEXT:
  {
    .param .b64 size;
    .param .b64 result;
    st.param.b64 [size], %rd2;
    call.uni (result), malloc, (size);
    ld.param.b64 %rd3, [result];
  }
  setp.ne.u64 %p1, %rd3, 0;
  @%p1 add.u32 %r3, %r3, 1;
  @%p1 st.u32 [%rd3], %r2;
  {
    .param .b64 address;
    st.param.b64 [address], %rd3;
    call.uni free, (address);
  }
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, %r1;
  @%p2 bra NEXT;
  st.global.u32 [%rd1], %r3;
  ret;
}

.visible .entry huge(.param .u64 out)
{
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [out];
  mov.u64 %rd2, 0x10000000000;
  {
    .param .b64 size;
    .param .b64 result;
    st.param.b64 [size], %rd2;
    call.uni (result), malloc, (size);
    ld.param.b64 %rd3, [result];
  }
  st.global.u64 [%rd1], %rd3;
  {
    .param .b64 address;
    st.param.b64 [address], %rd3;
    call.uni free, (address);
  }
  ret;
}
)PTX";

class KernelHeap : public WithContext {
 protected:
  void SetUp() override {
    WithContext::SetUp();
    ASSERT_EQ(Cu().cuModuleLoadData(&module_, kText), CUDA_SUCCESS);
    out_ = Alloc(1024);
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

  CUmodule module_ = nullptr;
  CUdeviceptr out_ = 0;
};

TEST_F(KernelHeap, StaysFromLaunchToLaunch) {
  constexpr uint32_t kThreads = 64;
  const CUdeviceptr pointers = Alloc(kThreads * 8);
  ASSERT_EQ(Launch(Kernel("make"), 1, kThreads, nullptr, pointers), CUDA_SUCCESS);
  std::vector<uint64_t> made = Download<uint64_t>(pointers, kThreads);
  std::sort(made.begin(), made.end());
  for (uint32_t i = 0; i < kThreads; ++i) {
    EXPECT_EQ(made[i] % 16, 0u);
    if (i > 0) {
      EXPECT_GE(made[i] - made[i - 1], 100u);
    }
  }
  ASSERT_EQ(Launch(Kernel("take"), 1, kThreads, nullptr, pointers, out_), CUDA_SUCCESS);
  std::vector<uint32_t> wanted(kThreads);
  for (uint32_t i = 0; i < kThreads; ++i) wanted[i] = i;
  EXPECT_EQ(Download<uint32_t>(out_, kThreads), wanted);
}

TEST_F(KernelHeap, FreedMemoryComesBack) {
  ASSERT_EQ(Launch(Kernel("again"), 1, 1, nullptr, out_, 100u), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out_, 1)[0], 100u);
}

TEST_F(KernelHeap, HasAnEnd) {
  ASSERT_EQ(Launch(Kernel("huge"), 1, 1, nullptr, out_), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint64_t>(out_, 1)[0], 0u);
}

TEST_F(KernelHeap, ItsSizeIsSettledOnceItIsUsed) {
  ASSERT_EQ(Launch(Kernel("again"), 1, 1, nullptr, out_, 1u), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  size_t size_bytes = 0;
  ASSERT_EQ(Cu().cuCtxGetLimit(&size_bytes, CU_LIMIT_MALLOC_HEAP_SIZE), CUDA_SUCCESS);
  EXPECT_GT(size_bytes, 0u);
  EXPECT_EQ(Cu().cuCtxSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 2 * size_bytes),
            CUDA_ERROR_INVALID_VALUE);
}

}  // namespace
}  // namespace gpuloom::conformance
