// SPDX-License-Identifier: Apache-2.0
// Modules, libraries and launches through the built library. The instructions themselves are tested
// beside the machine.
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "agent/softgpu/testing/built_driver.h"
#include "proto/sync/testing/wait_for.h"

namespace gpuloom::softgpu {
namespace {

constexpr char kPtx[] = R"(
.version 8.0
.target sm_90
.address_size 64

.visible .global .align 4 .u32 start_value = 40;
.visible .const .align 4 .u32 table[4] = {1, 2, 3, 4};

// out[i] = i + add + start_value
.visible .entry number(.param .u64 out, .param .u32 add, .param .u32 count)
{
  .reg .pred %p<2>;
  .reg .b32 %r<10>;
  .reg .b64 %rd<5>;
  ld.param.u64 %rd1, [out];
  ld.param.u32 %r1, [add];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.s32 %r6, %r3, %r4, %r5;
  setp.ge.u32 %p1, %r6, %r2;
  @%p1 bra done;
  ld.global.u32 %r7, [start_value];
  add.u32 %r8, %r6, %r1;
  add.u32 %r8, %r8, %r7;
  mul.wide.u32 %rd2, %r6, 4;
  add.u64 %rd3, %rd1, %rd2;
  st.global.u32 [%rd3], %r8;
done:
  ret;
}

// Stores at the address.
.visible .entry poke(.param .u64 out)
{
  .reg .b32 %r<2>;
  .reg .b64 %rd<2>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r1, 7;
  st.global.u32 [%rd1], %r1;
  ret;
}

.visible .entry stop()
{
  trap;
}

// Counts in counter until *flag is not 0.
.visible .entry count(.param .u64 flag, .param .u64 counter)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [flag];
  ld.param.u64 %rd2, [counter];
  mov.u32 %r2, 0;
again:
  add.u32 %r2, %r2, 1;
  st.volatile.global.u32 [%rd2], %r2;
  ld.volatile.global.u32 %r1, [%rd1];
  setp.eq.u32 %p1, %r1, 0;
  @%p1 bra again;
  ret;
}

.visible .entry small() .maxntid 64, 1, 1
{
  ret;
}
)";

class LaunchTest : public DriverTest {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    DriverTest::SetUp();
    ASSERT_EQ(Cuda().cuModuleLoadData(&module_, kPtx), CUDA_SUCCESS);
  }

  CUfunction Function(const char* name) {
    CUfunction function = nullptr;
    EXPECT_EQ(Cuda().cuModuleGetFunction(&function, module_, name), CUDA_SUCCESS) << name;
    return function;
  }

  static CUresult Launch(CUfunction function, unsigned grid, unsigned block,
                         std::vector<void*> params, CUstream stream = nullptr) {
    return Cuda().cuLaunchKernel(function, grid, 1, 1, block, 1, 1, 0, stream, params.data(),
                                 nullptr);
  }

  void ExpectNumbers(CUdeviceptr pointer, int count, int from) {
    std::vector<int> numbers(static_cast<size_t>(count));
    ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(numbers.data(), pointer, numbers.size() * 4), CUDA_SUCCESS);
    for (int i = 0; i < count; ++i) ASSERT_EQ(numbers[static_cast<size_t>(i)], i + from) << i;
  }

  CUmodule module_ = nullptr;
};

TEST_F(LaunchTest, KernelsRunWithTheirParameters) {
  CUdeviceptr pointer = Allocate(4000);
  unsigned add = 2;
  unsigned count = 1000;
  ASSERT_EQ(Launch(Function("number"), 8, 128, {&pointer, &add, &count}), CUDA_SUCCESS);
  ExpectNumbers(pointer, 1000, 42);

  // The same in one buffer.
  struct {
    CUdeviceptr out;
    unsigned add;
    unsigned count;
  } block = {pointer, 60, 1000};
  size_t size = sizeof(block);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &block, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(
      Cuda().cuLaunchKernel(Function("number"), 8, 1, 1, 128, 1, 1, 0, nullptr, nullptr, extra),
      CUDA_SUCCESS);
  ExpectNumbers(pointer, 1000, 100);
}

TEST_F(LaunchTest, VariablesAreReadAndWritten) {
  CUdeviceptr variable = 0;
  size_t size = 0;
  ASSERT_EQ(Cuda().cuModuleGetGlobal_v2(&variable, &size, module_, "start_value"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  int value = 0;
  ASSERT_EQ(Cuda().cuMemcpyDtoH_v2(&value, variable, 4), CUDA_SUCCESS);
  EXPECT_EQ(value, 40);
  value = 1000;
  ASSERT_EQ(Cuda().cuMemcpyHtoD_v2(variable, &value, 4), CUDA_SUCCESS);
  CUdeviceptr pointer = Allocate(64);
  unsigned add = 0;
  unsigned count = 16;
  ASSERT_EQ(Launch(Function("number"), 1, 32, {&pointer, &add, &count}), CUDA_SUCCESS);
  ExpectNumbers(pointer, 16, 1000);
  EXPECT_EQ(Cuda().cuModuleGetGlobal_v2(&variable, &size, module_, "nothing"),
            CUDA_ERROR_NOT_FOUND);
}

TEST_F(LaunchTest, ALibrarysKernelStandsForAFunction) {
  CUlibrary library = nullptr;
  ASSERT_EQ(Cuda().cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  // Without a context, as gpuloom's executor may load.
  ASSERT_EQ(Cuda().cuLibraryLoadData(&library, kPtx, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  unsigned kernels = 0;
  ASSERT_EQ(Cuda().cuLibraryGetKernelCount(&kernels, library), CUDA_SUCCESS);
  EXPECT_EQ(kernels, 5u);
  CUkernel kernel = nullptr;
  ASSERT_EQ(Cuda().cuLibraryGetKernel(&kernel, library, "number"), CUDA_SUCCESS);
  const char* name = nullptr;
  ASSERT_EQ(Cuda().cuKernelGetName(&name, kernel), CUDA_SUCCESS);
  EXPECT_STREQ(name, "number");
  size_t offset = 0;
  size_t size = 0;
  ASSERT_EQ(Cuda().cuKernelGetParamInfo(kernel, 2, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 12u);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(Cuda().cuKernelGetParamInfo(kernel, 3, &offset, &size), CUDA_ERROR_INVALID_VALUE);

  ASSERT_EQ(Cuda().cuCtxSetCurrent(context_), CUDA_SUCCESS);
  CUdeviceptr pointer = Allocate(400);
  unsigned add = 0;
  unsigned count = 100;
  ASSERT_EQ(Launch(reinterpret_cast<CUfunction>(kernel), 1, 128, {&pointer, &add, &count}),
            CUDA_SUCCESS);
  ExpectNumbers(pointer, 100, 40);
  // The library's variables are not the module's.
  CUdeviceptr of_library = 0;
  CUdeviceptr of_module = 0;
  ASSERT_EQ(Cuda().cuLibraryGetGlobal(&of_library, &size, library, "start_value"), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuModuleGetGlobal_v2(&of_module, &size, module_, "start_value"), CUDA_SUCCESS);
  EXPECT_NE(of_library, of_module);
  EXPECT_EQ(Cuda().cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(kernel), 1, 1, {}), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Cuda().cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LaunchTest, UnloadingGivesTheMemoryBack) {
  const size_t before = FreeBytes();
  CUmodule second = nullptr;
  ASSERT_EQ(Cuda().cuModuleLoadData(&second, kPtx), CUDA_SUCCESS);
  EXPECT_LT(FreeBytes(), before);
  CUfunction function = nullptr;
  ASSERT_EQ(Cuda().cuModuleGetFunction(&function, second, "small"), CUDA_SUCCESS);
  ASSERT_EQ(Launch(function, 1, 1, {}), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuModuleUnload(second), CUDA_SUCCESS);
  EXPECT_EQ(FreeBytes(), before);
  EXPECT_EQ(Launch(function, 1, 1, {}), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LaunchTest, WrongLaunchesAreRefused) {
  const CUfunction small = Function("small");
  EXPECT_EQ(Launch(small, 0, 1, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(small, 1, 0, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(small, 1, 1025, {}), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(small, 1, 65, {}), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(Cuda().cuLaunchKernel(small, 1, 65536, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuLaunchKernel(small, 1, 1, 1, 1, 1, 1, 49 * 1024, nullptr, nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(
      Cuda().cuFuncSetAttribute(small, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 64 * 1024),
      CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuLaunchKernel(small, 1, 1, 1, 1, 1, 1, 49 * 1024, nullptr, nullptr, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(
      Cuda().cuLaunchKernel(Function("number"), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
      CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(nullptr, 1, 1, {}), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(LaunchTest, BadImagesAreToldApart) {
  CUmodule bad = nullptr;
  char log[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  constexpr char kBroken[] =
      ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{\n  frobnicate;\n}\n";
  EXPECT_EQ(Cuda().cuModuleLoadDataEx(&bad, kBroken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log).find("frobnicate"), std::string::npos) << log;
  EXPECT_NE(std::string(log).find('6'), std::string::npos) << log;
  EXPECT_EQ(reinterpret_cast<size_t>(values[1]), std::string(log).size());
  EXPECT_EQ(Cuda().cuModuleLoadData(&bad, nullptr), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(LaunchTest, OccupancyFollowsTheLimits) {
  int blocks = 0;
  ASSERT_EQ(Cuda().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("small"), 64, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 32);
  ASSERT_EQ(Cuda().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("small"), 64,
                                                               100 * 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(blocks, 2);
  int grid = 0;
  int block = 0;
  ASSERT_EQ(
      Cuda().cuOccupancyMaxPotentialBlockSize(&grid, &block, Function("small"), nullptr, 0, 0),
      CUDA_SUCCESS);
  EXPECT_EQ(block, 64);
  EXPECT_EQ(grid, 32 * 4);
}

TEST_F(LaunchTest, KernelsOfTwoStreamsRunSideBySide) {
  // The first kernel ends only when the second stream has written its flag.
  CUdeviceptr words = Allocate(8);
  ASSERT_EQ(Cuda().cuMemsetD32_v2(words, 0, 2), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuCtxSynchronize(), CUDA_SUCCESS);
  CUdeviceptr counter = words + 4;
  CUstream first = nullptr;
  CUstream second = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  const CUfunction poke = Function("poke");  // loaded while nothing runs
  ASSERT_EQ(Launch(Function("count"), 1, 1, {&words, &counter}, first), CUDA_SUCCESS);
  ASSERT_EQ(Launch(poke, 1, 1, {&words}, second), CUDA_SUCCESS);
  EXPECT_EQ(Cuda().cuStreamSynchronize(first), CUDA_SUCCESS);
}

// As on an H200: loading another kernel does not wait, but what comes after it does.
TEST_F(LaunchTest, WhatComesAfterCodeWasLoadedWaitsForWhatRuns) {
  uint32_t* flag = nullptr;
  ASSERT_EQ(Cuda().cuMemHostAlloc(reinterpret_cast<void**>(&flag), 8, 0), CUDA_SUCCESS);
  uint32_t* counter = flag + 1;
  *flag = *counter = 0;
  const auto runs_on = [counter] {
    const uint32_t before = std::atomic_ref(*counter).load();
    return WaitFor([&] { return std::atomic_ref(*counter).load() - before > 1'000; });
  };
  const CUdeviceptr other = Allocate(4);
  CUstream first = nullptr;
  CUstream second = nullptr;
  ASSERT_EQ(Cuda().cuStreamCreate(&first, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamCreate(&second, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("count"), 1, 1, {&flag, &counter}, first), CUDA_SUCCESS);
  ASSERT_TRUE(runs_on());
  ASSERT_EQ(Cuda().cuMemsetD32Async(other, 0, 1, second), CUDA_SUCCESS);
  ASSERT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS) << "nothing was loaded";
  (void)Function("small");
  ASSERT_EQ(Cuda().cuMemsetD32Async(other, 0, 1, second), CUDA_SUCCESS);
  ASSERT_TRUE(runs_on());
  EXPECT_EQ(Cuda().cuStreamQuery(second), CUDA_ERROR_NOT_READY);
  std::atomic_ref(*flag).store(1);
  EXPECT_EQ(Cuda().cuStreamSynchronize(second), CUDA_SUCCESS);
}

// Each fault ends a process of its own, because it is sticky.
TEST_F(LaunchTest, OccupancyCountsTheClusterThatALaunchWouldHave) {
  const CUfunction small = Function("small");
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {4, 1, 1};
  CUlaunchConfig config{};
  config.gridDimX = config.gridDimY = config.gridDimZ = 1;
  config.blockDimX = 32;
  config.blockDimY = config.blockDimZ = 1;
  int alone = 0;
  int asked = 0;
  int set = 0;
  ASSERT_EQ(Cuda().cuOccupancyMaxActiveClusters(&alone, small, &config), CUDA_SUCCESS);
  config.numAttrs = 1;
  EXPECT_EQ(Cuda().cuOccupancyMaxActiveClusters(&asked, small, &config), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cuda().cuOccupancyMaxPotentialClusterSize(&asked, small, &config),
            CUDA_ERROR_INVALID_VALUE);
  config.attrs = &attribute;
  ASSERT_EQ(Cuda().cuOccupancyMaxActiveClusters(&asked, small, &config), CUDA_SUCCESS);
  EXPECT_EQ(asked, alone / 4);
  for (const auto& [axis, size] : {std::pair{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, 4},
                                   {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, 1},
                                   {CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, 1}}) {
    ASSERT_EQ(Cuda().cuFuncSetAttribute(small, axis, size), CUDA_SUCCESS);
  }
  config.numAttrs = 0;
  ASSERT_EQ(Cuda().cuOccupancyMaxActiveClusters(&set, small, &config), CUDA_SUCCESS);
  EXPECT_EQ(set, asked);
}

using FaultDeathTest = LaunchTest;

void ExitWith(bool right) { std::_Exit(right ? 0 : 1); }

TEST_F(FaultDeathTest, IllegalAddressIsSticky) {
  CUdeviceptr nowhere = 0x1000;
  const auto run = [&] {
    const CUfunction poke = Function("poke");
    bool right = Launch(poke, 1, 1, {&nowhere}) == CUDA_SUCCESS;
    right = Cuda().cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS && right;
    right = Launch(poke, 1, 1, {&nowhere}) == CUDA_ERROR_ILLEGAL_ADDRESS && right;
    CUdeviceptr pointer = 0;
    right = Cuda().cuMemAlloc_v2(&pointer, 4) == CUDA_ERROR_ILLEGAL_ADDRESS && right;
    CUcontext context = nullptr;
    right = Cuda().cuDevicePrimaryCtxReset_v2(0) == CUDA_SUCCESS && right;
    right = Cuda().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_ERROR_ILLEGAL_ADDRESS && right;
    ExitWith(right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, AFewBytesTooFarAreOutOfBounds) {
  const auto run = [&] {
    CUdeviceptr inside = Allocate(512) + 508;
    CUdeviceptr outside = inside + 4;
    bool right = Launch(Function("poke"), 1, 1, {&inside}) == CUDA_SUCCESS;
    right = Cuda().cuCtxSynchronize() == CUDA_SUCCESS && right;
    right = Launch(Function("poke"), 1, 1, {&outside}) == CUDA_SUCCESS && right;
    ExitWith(Cuda().cuCtxSynchronize() == CUDA_ERROR_ILLEGAL_ADDRESS && right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, TrapIsALaunchFailure) {
  const auto run = [&] {
    const bool right = Launch(Function("stop"), 1, 1, {}) == CUDA_SUCCESS;
    ExitWith(Cuda().cuCtxSynchronize() == CUDA_ERROR_LAUNCH_FAILED && right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, MisalignedAccessIsToldSo) {
  const auto run = [&] {
    CUdeviceptr crooked = Allocate(64) + 2;
    const bool right = Launch(Function("poke"), 1, 1, {&crooked}) == CUDA_SUCCESS;
    ExitWith(Cuda().cuCtxSynchronize() == CUDA_ERROR_MISALIGNED_ADDRESS && right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, AStreamWithoutAThreadIsAFault) {
  const auto run = [&] {
    const CUdeviceptr pointer = Allocate(64);
    CUstream stream = nullptr;
    bool right = Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS;
    const WithoutThreads without;
    right = Cuda().cuMemsetD8Async(pointer, 1, 64, stream) == CUDA_SUCCESS && right;
    ExitWith(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_OPERATING_SYSTEM && right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, UnmappingUnderARunningKernelFaultsItAndNothingElse) {
  const auto run = [&] {
    const CUmemGenericAllocationHandle memory = Create(kGranule);
    CUdeviceptr flag = 0;
    bool right = Cuda().cuMemAddressReserve(&flag, kGranule, 0, 0, 0) == CUDA_SUCCESS;
    right = Cuda().cuMemMap(flag, kGranule, 0, memory, 0) == CUDA_SUCCESS && right;
    Allow(flag, kGranule);
    void* host = nullptr;
    right = Cuda().cuMemHostAlloc(&host, 4096, 0) == CUDA_SUCCESS && right;
    auto counter = reinterpret_cast<CUdeviceptr>(host);
    auto* counted = static_cast<std::atomic<uint32_t>*>(host);
    CUstream stream = nullptr;
    right = Cuda().cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS && right;
    right = Launch(Function("count"), 1, 1, {&flag, &counter}, stream) == CUDA_SUCCESS && right;
    while (counted->load() < 100) std::this_thread::yield();  // it runs, and touches the flag
    right = Cuda().cuMemUnmap(flag, kGranule) == CUDA_SUCCESS && right;
    right = Cuda().cuMemAddressFree(flag, kGranule) == CUDA_SUCCESS && right;
    ExitWith(Cuda().cuStreamSynchronize(stream) == CUDA_ERROR_ILLEGAL_ADDRESS && right);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

TEST_F(FaultDeathTest, AKernelThatNeverEndsDoesNotKeepTheProcess) {
  const auto run = [&] {
    CUdeviceptr words = Allocate(8);
    CUdeviceptr counter = words + 4;
    static_cast<void>(Launch(Function("count"), 1, 1, {&words, &counter}));
    std::exit(0);  // that is what is tested
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace gpuloom::softgpu
