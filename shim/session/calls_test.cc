// SPDX-License-Identifier: Apache-2.0
// What the calls put on the wire, and which mistakes never get there.
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include "proto/cuda/fatbin.h"
#include "proto/cuda/image_hash.h"
#include "shim/copy/staging.h"
#include "shim/testing/loaded_shim.h"

namespace gpuloom {
namespace {

class Calls : public ShimTest {
 protected:
  void SetUp() override { Begin(); }

  static std::vector<uint8_t> Pattern(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<uint8_t>(i * 31 + (i >> 8));
    return bytes;
  }
};

TEST_F(Calls, ParametersArriveByTheirLayout) {
  const CUfunction kernel = Function("int_pointer_struct");
  int number = 0x01020304;
  uint64_t pointer = 0x1122334455667788;
  struct {
    uint32_t words[3];
  } three = {{7, 8, 9}};
  void* params[] = {&number, &pointer, &three};
  ASSERT_EQ(cu_.cuLaunchKernel(kernel, 2, 3, 4, 8, 4, 2, 100, nullptr, params, nullptr),
            CUDA_SUCCESS);
  node_.WaitForCount("Launch", 1);
  const TestingNode::Seen seen = node_.seen("Launch")[0];
  const auto request = seen.As<wire::Launch>();
  EXPECT_EQ(request.grid[2], 4u);
  EXPECT_EQ(request.block[0], 8u);
  EXPECT_EQ(request.dynamic_shared_bytes, 100u);
  EXPECT_EQ(request.flags, 0u);
  uint8_t expected[28] = {};
  memcpy(expected, &number, 4);
  memcpy(expected + 8, &pointer, 8);
  memcpy(expected + 16, &three, 12);
  EXPECT_EQ(seen.payload, std::vector<uint8_t>(expected, expected + sizeof(expected)));

  size_t size = sizeof(expected);
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, expected, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                   CU_LAUNCH_PARAM_END};
  ASSERT_EQ(cu_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  node_.WaitForCount("Launch", 2);
  EXPECT_EQ(node_.seen("Launch")[1].payload, seen.payload);
  size = sizeof(expected) - 1;
  EXPECT_EQ(cu_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Calls, WrongLaunchesAreRefusedHere) {
  const CUfunction kernel = Function("none");
  const auto launch = [&](unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared) {
    return cu_.cuLaunchKernel(kernel, gx, gy, gz, bx, by, bz, shared, nullptr, nullptr, nullptr);
  };
  EXPECT_EQ(launch(0, 1, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 65536, 1, 1, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 1025, 1, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 64, 64, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch(1, 1, 1, 513, 1, 1, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(launch(1, 1, 1, 1, 1, 1, (48 << 10) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Launch(nullptr), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(uintptr_t{0x1234})), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(reinterpret_cast<uintptr_t>(kernel) + 8)),
            CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(module_)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(Launch(kernel, reinterpret_cast<CUstream>(kernel)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu_.cuLaunchKernel(Function("int_pointer_struct"), 1, 1, 1, 1, 1, 1, 0, nullptr,
                               nullptr, nullptr),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.count("Launch"), 0u);
}

TEST_F(Calls, LaunchAttributesThatNobodyKnowsAreRefused) {
  const CUfunction kernel = Function("none");
  CUlaunchAttribute attribute = {};
  CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
  testing::internal::CaptureStderr();
  attribute.id = CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE;
  attribute.value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  EXPECT_EQ(cu_.cuLaunchKernelEx(&config, kernel, nullptr, nullptr), CUDA_ERROR_NOT_SUPPORTED);
  attribute.id = static_cast<CUlaunchAttributeID>(77);
  EXPECT_EQ(cu_.cuLaunchKernelEx(&config, kernel, nullptr, nullptr), CUDA_ERROR_INVALID_VALUE);
  testing::internal::GetCapturedStderr();
  EXPECT_EQ(node_.count("LaunchEx"), 0u);
}

TEST_F(Calls, KernelsAreAskedForOnce) {
  const CUfunction kernel = Function("none");
  EXPECT_EQ(Function("none"), kernel);
  EXPECT_EQ(node_.count("KernelGet"), 1u);
  CUkernel as_kernel = reinterpret_cast<CUkernel>(kernel);
  CUfunction function = nullptr;
  EXPECT_EQ(cu_.cuKernelGetFunction(&function, as_kernel), CUDA_SUCCESS);
  EXPECT_EQ(Launch(function), CUDA_SUCCESS);
  const char* name = nullptr;
  EXPECT_EQ(cu_.cuFuncGetName(&name, kernel), CUDA_SUCCESS);
  EXPECT_STREQ(name, "none");
  int value = 0;
  EXPECT_EQ(cu_.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel),
            CUDA_SUCCESS);
  EXPECT_EQ(value, 512);
  EXPECT_EQ(cu_.cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE,
                                   kernel),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuModuleGetFunction(&function, module_, "missing"), CUDA_ERROR_NOT_FOUND);
  // Setting what is set already needs no message.
  EXPECT_EQ(cu_.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuFuncSetAttribute(kernel, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1024),
            CUDA_SUCCESS);
  EXPECT_EQ(node_.count("KernelSetAttribute"), 1u);
  int blocks = 0;
  EXPECT_EQ(cu_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, 256, 0), CUDA_SUCCESS);
  EXPECT_EQ(blocks, 4);
  EXPECT_EQ(node_.count("OccupancyBlocks"), 1u);
  int grid = 0, block = 0;
  EXPECT_EQ(cu_.cuOccupancyMaxPotentialBlockSize(&grid, &block, kernel, nullptr, 0, 0),
            CUDA_SUCCESS);
  EXPECT_EQ(block, 512);
  EXPECT_EQ(grid, 8);
}

TEST_F(Calls, AKernelMayHaveMoreParametersThanAnAnswerHolds) {
  const CUfunction kernel = Function("many");
  EXPECT_EQ(node_.count("KernelParams"), 1u);
  size_t offset = 0, param_bytes = 0;
  EXPECT_EQ(cu_.cuFuncGetParamInfo(kernel, 599, &offset, &param_bytes), CUDA_SUCCESS);
  EXPECT_EQ(offset, 599u * 4);
  EXPECT_EQ(param_bytes, 4u);
  EXPECT_EQ(cu_.cuFuncGetParamInfo(kernel, 600, &offset, &param_bytes), CUDA_ERROR_INVALID_VALUE);
  std::vector<uint8_t> packed = Pattern(2400);
  std::vector<void*> params;
  for (size_t i = 0; i < 600; ++i) params.push_back(&packed[i * 4]);
  EXPECT_EQ(cu_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, params.data(), nullptr),
            CUDA_SUCCESS);
  size_t size = packed.size();
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, packed.data(), CU_LAUNCH_PARAM_BUFFER_SIZE,
                   &size, CU_LAUNCH_PARAM_END};
  EXPECT_EQ(cu_.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, extra), CUDA_SUCCESS);
  node_.WaitForCount("Launch", 2);
  EXPECT_EQ(node_.seen("Launch")[0].payload, packed);
  EXPECT_EQ(node_.seen("Launch")[1].payload, packed);
}

TEST_F(Calls, ListedKernelsAreAskedForWhenTheyAreUsed) {
  Function("none");
  unsigned count = 0;
  ASSERT_EQ(cu_.cuModuleGetFunctionCount(&count, module_), CUDA_SUCCESS);
  ASSERT_EQ(count, 2u);
  CUfunction functions[2] = {};
  ASSERT_EQ(cu_.cuModuleEnumerateFunctions(functions, 2, module_), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryKernels"), 2u);
  const char* name = nullptr;
  ASSERT_EQ(cu_.cuFuncGetName(&name, functions[1]), CUDA_SUCCESS);
  EXPECT_EQ(name, std::string(5000, 'x'));
  CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
  EXPECT_EQ(cu_.cuFuncIsLoaded(&state, functions[0]), CUDA_SUCCESS);
  EXPECT_EQ(state, CU_FUNCTION_LOADING_STATE_UNLOADED);
  EXPECT_EQ(node_.count("KernelGet"), 1u);
  size_t offset = 0, size = 0;
  EXPECT_EQ(cu_.cuFuncGetParamInfo(functions[0], 2, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(size, 12u);
  EXPECT_EQ(node_.count("KernelGet"), 2u);
  EXPECT_EQ(Function("int_pointer_struct"), functions[0]);
  EXPECT_EQ(node_.count("KernelGet"), 2u);
}

TEST_F(Calls, AttributesMakeALaunchAnother) {
  const CUfunction kernel = Function("empty");
  CUlaunchAttribute attributes[2] = {};
  CUlaunchConfig config{4, 2, 1, 32, 1, 1, 0, nullptr, attributes, 2};
  attributes[0].id = CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY;
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
  ASSERT_EQ(cu_.cuLaunchKernelEx(&config, kernel, nullptr, nullptr), CUDA_SUCCESS);
  node_.WaitForCount("Launch", 1);  // they asked for nothing
  attributes[1].id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attributes[1].value.clusterDim = {4, 2, 1};
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cu_.cuLaunchKernelEx(&config, kernel, nullptr, nullptr), CUDA_SUCCESS);
  }
  node_.WaitForCount("LaunchEx", 2);
  EXPECT_EQ(node_.count("OccupancyClusters"), 1u);
  attributes[1].value.clusterDim = {3, 1, 1};
  EXPECT_EQ(cu_.cuLaunchKernelEx(&config, kernel, nullptr, nullptr),
            CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(cu_.cuLaunchCooperativeKernel(kernel, 9, 1, 1, 512, 1, 1, 0, nullptr, nullptr),
            CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  EXPECT_EQ(cu_.cuLaunchCooperativeKernel(kernel, 8, 1, 1, 512, 1, 1, 0, nullptr, nullptr),
            CUDA_SUCCESS);
}

TEST_F(Calls, ImagesTravelWholeAndTheirMemoryIsTheProgramsAgain) {
  std::string ptx = ".version 8.0\n" + std::string(3 << 20, ' ');
  const std::string sent = ptx;
  CUmodule module = nullptr;
  ASSERT_EQ(cu_.cuModuleLoadData(&module, ptx.c_str()), CUDA_SUCCESS);
  const auto images = node_.images();
  ASSERT_EQ(images.size(), 1u);
  EXPECT_EQ(std::string(images[0].begin(), images[0].end()), sent);
  EXPECT_EQ(cu_.cuModuleLoadData(&module, "garbage"), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(cu_.cuModuleLoad(&module, "/nonexistent.ptx"), CUDA_ERROR_FILE_NOT_FOUND);
  EXPECT_EQ(node_.count("LibraryLoad"), 1u);
  CUlibrary library = nullptr;
  EXPECT_EQ(cu_.cuLibraryUnload(reinterpret_cast<CUlibrary>(module)), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cu_.cuLibraryLoadData(&library, ptx.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  ASSERT_EQ(cu_.cuLibraryGetKernel(&kernel, library, "none"), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(Launch(reinterpret_cast<CUfunction>(kernel)), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(cu_.cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Calls, AnImageThatTheDomainHasIsNotSentAgain) {
  if (!HashesImagesFast()) GTEST_SKIP() << "here sending an image costs less than its hash";
  const std::string small = ".version 8.0\n";
  const std::string large = small + std::string(wire::kByHashBytes, ' ');
  const std::string other = large + "\n";
  CUmodule module = nullptr;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(cu_.cuModuleLoadData(&module, small.c_str()), CUDA_SUCCESS);
    ASSERT_EQ(cu_.cuModuleLoadData(&module, large.c_str()), CUDA_SUCCESS);
  }
  EXPECT_EQ(node_.count("LibraryLoadByHash"), 2u);
  EXPECT_EQ(node_.images().size(), 3u) << "the small one twice, the large one once";
  ASSERT_EQ(cu_.cuModuleLoadData(&module, other.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(node_.images().size(), 4u);
}

TEST_F(Calls, ALargeImageIsHashedOnlyIfOneOfItsSizeIsKnown) {
  if (!HashesImagesFast()) GTEST_SKIP() << "here sending an image costs less than its hash";
  const std::string image = ".version 8.0\n" + std::string(wire::kBySizeBytes, ' ');
  CUmodule module = nullptr;
  ASSERT_EQ(cu_.cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibrarySizeKnown"), 1u);
  EXPECT_EQ(node_.count("LibraryLoadByHash"), 0u);
  ASSERT_EQ(cu_.cuModuleLoadData(&module, image.c_str()), CUDA_SUCCESS);
  EXPECT_EQ(node_.count("LibraryLoadByHash"), 1u);
  EXPECT_EQ(node_.images().size(), 1u);
}

TEST_F(Calls, TheCompilersWordsReachTheProgram) {
  node_.AnswerLoadWith(CUDA_ERROR_INVALID_PTX, "line 3: no such instruction");
  char errors[16] = "", infos[16] = "x";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES,
                            CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors)), infos,
                    reinterpret_cast<void*>(sizeof(infos))};
  CUmodule module = nullptr;
  EXPECT_EQ(cu_.cuModuleLoadDataEx(&module, ".version 8.0", 4, options, values),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_STREQ(errors, "line 3: no such");  // cut to what there is room for
  EXPECT_EQ(values[1], reinterpret_cast<void*>(sizeof(errors)));
  EXPECT_STREQ(infos, "");
  EXPECT_EQ(values[3], nullptr);
  EXPECT_EQ(module, nullptr);
  const auto compiled = node_.seen("LibraryCompile");
  ASSERT_EQ(compiled.size(), 1u);
  const auto request = compiled[0].As<wire::LibraryCompile>();
  EXPECT_EQ(request.error_capacity_bytes, sizeof(errors));
  EXPECT_EQ(request.info_capacity_bytes, sizeof(infos));
  const auto images = node_.images();
  ASSERT_EQ(images.size(), 1u);
  EXPECT_EQ(std::string(images[0].begin(), images[0].end()), ".version 8.0");
  EXPECT_EQ(node_.count("LibraryLoad"), 0u);
}

TEST_F(Calls, WhatIsWrongWithMachineCodeIsToldAsErrorsOfTheCompiler) {
  fatbin_internal::ElfHeader cubin = {};
  const uint8_t ident[] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  std::memcpy(cubin.ident, ident, sizeof(ident));
  cubin.machine = fatbin_internal::kElfMachineCuda;
  cubin.header_bytes = sizeof(cubin);
  node_.AnswerLoadWith(CUDA_ERROR_INVALID_IMAGE, "no code");
  char errors[16] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {errors, reinterpret_cast<void*>(sizeof(errors))};
  CUmodule module = nullptr;
  EXPECT_EQ(cu_.cuModuleLoadDataEx(&module, &cubin, 2, options, values), CUDA_ERROR_INVALID_IMAGE);
  EXPECT_STREQ(errors, "no code");
  EXPECT_EQ(values[1], reinterpret_cast<void*>(std::strlen("no code")));
  EXPECT_EQ(node_.count("LibraryLoad"), 1u);
  EXPECT_EQ(node_.count("LibraryCompile"), 0u);
}

TEST_F(Calls, PageableCopiesAreTakenOverBeforeTheCallReturns) {
  for (const size_t size :
       {size_t{1}, size_t{wire::kMaxInlineCopyBytes}, size_t{wire::kMaxInlineCopyBytes} + 1,
        size_t{kStagingBytes}, size_t{kStagingBytes} * (kStagingBuffers + 3) + 5}) {
    const CUdeviceptr device = Alloc(size);
    const std::vector<uint8_t> original = Pattern(size);
    std::vector<uint8_t> source = original;
    ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, source.data(), size, nullptr), CUDA_SUCCESS);
    std::fill(source.begin(), source.end(), uint8_t{0xee});
    std::vector<uint8_t> back(size);
    ASSERT_EQ(cu_.cuMemcpyDtoHAsync_v2(back.data(), device, size, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(back, original) << size;  // an asynchronous copy to pageable memory is none
    EXPECT_EQ(cu_.cuMemFree_v2(device), CUDA_SUCCESS);
  }
  EXPECT_EQ(node_.count("CopyInline"), 1u);
  EXPECT_EQ(node_.count("HostRegister"), 2u);  // small and large staging buffers, once
}

TEST_F(Calls, PageableCopiesOfManyThreadsDoNotMix) {
  constexpr size_t kSize = kStagingBytes * 6 + 7;
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
      const CUdeviceptr device = Alloc(kSize);
      const std::vector<uint8_t> source(kSize, static_cast<uint8_t>(i + 1));
      for (int round = 0; round < 5; ++round) {
        std::vector<uint8_t> back(kSize);
        EXPECT_EQ(cu_.cuMemcpyHtoD_v2_ptds(device, source.data(), kSize), CUDA_SUCCESS);
        EXPECT_EQ(cu_.cuMemcpyDtoH_v2_ptds(back.data(), device, kSize), CUDA_SUCCESS);
        EXPECT_EQ(back, source);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Calls, PinnedMemoryIsCopiedWhereItLies) {
  const CUdeviceptr device = Alloc(100'000);
  void* pinned = nullptr;
  ASSERT_EQ(cu_.cuMemHostAlloc(&pinned, 100'000, 0), CUDA_SUCCESS);
  CUdeviceptr same = 0;
  EXPECT_EQ(cu_.cuMemHostGetDevicePointer_v2(&same, pinned, 0), CUDA_SUCCESS);
  EXPECT_EQ(same, reinterpret_cast<CUdeviceptr>(pinned));
  node_.HoldCompletions(true);
  ASSERT_EQ(cu_.cuMemcpyHtoDAsync_v2(device, pinned, 100'000, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);  // it really is asynchronous
  node_.HoldCompletions(false);
  ASSERT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
  const auto copies = node_.seen("Copy");
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].As<wire::Copy>().source, reinterpret_cast<uint64_t>(pinned));
  EXPECT_EQ(copies[0].As<wire::Copy>().kind, wire::CopyKind::kHostToDevice);
  unsigned flags = 0;
  EXPECT_EQ(cu_.cuMemHostGetFlags(&flags, pinned), CUDA_SUCCESS);
  EXPECT_EQ(flags, unsigned{CU_MEMHOSTALLOC_DEVICEMAP});
  EXPECT_EQ(cu_.cuMemFreeHost(pinned), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemFreeHost(pinned), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Calls, PinnedMemoryHasALimitAndComesBack) {
  void* pinned = nullptr;
  EXPECT_EQ(cu_.cuMemHostAlloc(&pinned, (size_t{64} << 20) + 1, 0), CUDA_ERROR_OUT_OF_MEMORY);
  for (int round = 0; round < 5; ++round) {
    std::vector<void*> many;
    for (;;) {
      const CUresult result = cu_.cuMemHostAlloc(&pinned, 3 << 20, 0);
      if (result != CUDA_SUCCESS) {
        EXPECT_EQ(result, CUDA_ERROR_OUT_OF_MEMORY);
        break;
      }
      memset(pinned, round, 3 << 20);
      many.push_back(pinned);
    }
    EXPECT_GE(many.size(), 18u) << "round " << round;
    EXPECT_LE(many.size(), 21u);
    for (void* one : many) EXPECT_EQ(cu_.cuMemFreeHost(one), CUDA_SUCCESS);
  }
  // Once everything is free, one piece as large as the limit fits again.
  EXPECT_EQ(cu_.cuMemHostAlloc(&pinned, size_t{64} << 20, 0), CUDA_SUCCESS);
}

TEST_F(Calls, AddressesThatAreNotTheProgramsNeverLeaveTheProcess) {
  const CUdeviceptr device = Alloc(1000);
  char buffer[2000] = {};
  const CUdeviceptr unowned = node_.welcome().device_range_begin + (100 << 20);
  const auto arena = reinterpret_cast<void*>(node_.welcome().host_range_begin + (100 << 20));
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device, buffer, 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device + 1000, buffer, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device - 1, buffer, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(unowned, buffer, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(reinterpret_cast<CUdeviceptr>(buffer), buffer, 1),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device, nullptr, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device, arena, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyDtoH_v2(buffer, 0x1000, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyDtoD_v2(device, unowned, 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD8_v2(device, 1, 1001), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD32_v2(device + 2, 1, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemsetD32_v2(device, 1, SIZE_MAX / 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemFree_v2(device + 8), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(device, buffer, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
  for (const char* name : {"Copy", "CopyInline", "Fill", "MemFree", "MemFreeLater"})
    EXPECT_EQ(node_.count(name), 0u);
}

TEST_F(Calls, GlobalsAreMemoryOnceAskedFor) {
  CUmodule module = nullptr;
  ASSERT_EQ(cu_.cuModuleLoadData(&module, ".version 8.0"), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  size_t size = 0;
  ASSERT_EQ(cu_.cuModuleGetGlobal_v2(&address, &size, module, "variable"), CUDA_SUCCESS);
  EXPECT_EQ(size, 64u);
  int number = 42, back = 0;
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(address + 4, &number, sizeof(number)), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemcpyDtoH_v2(&back, address + 4, sizeof(back)), CUDA_SUCCESS);
  EXPECT_EQ(back, 42);
  EXPECT_EQ(cu_.cuMemcpyHtoD_v2(address + 62, &number, sizeof(number)), CUDA_ERROR_INVALID_VALUE);
  ASSERT_EQ(cu_.cuModuleUnload(module), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuMemcpyDtoH_v2(&back, address, sizeof(back)), CUDA_ERROR_INVALID_VALUE);
}

// What the driver has back it gives to another thread's library at once, whose variable is noted then: it
// must not be taken for the old one, and be forgotten with it.
TEST_F(Calls, GlobalsAreForgottenBeforeTheirLibraryIsUnloaded) {
  CUmodule module = nullptr;
  ASSERT_EQ(cu_.cuModuleLoadData(&module, ".version 8.0"), CUDA_SUCCESS);
  CUcontext context = nullptr;
  ASSERT_EQ(cu_.cuCtxGetCurrent(&context), CUDA_SUCCESS);
  CUdeviceptr address = 0;
  size_t size = 0;
  ASSERT_EQ(cu_.cuModuleGetGlobal_v2(&address, &size, module, "variable"), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuMemGetAddressRange_v2(nullptr, &size, address), CUDA_SUCCESS);
  node_.PauseReading(true);
  std::thread unloads([&] {
    EXPECT_EQ(cu_.cuCtxSetCurrent(context), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuModuleUnload(module), CUDA_SUCCESS);
  });
  node_.WaitForSleeper();  // for the answer
  EXPECT_EQ(cu_.cuMemGetAddressRange_v2(nullptr, &size, address), CUDA_ERROR_NOT_FOUND);
  node_.PauseReading(false);
  unloads.join();
}

TEST_F(Calls, EventsAreReadFromTheirStreamsProgress) {
  CUevent event = nullptr, other = nullptr;
  CUstream stream = nullptr;
  ASSERT_EQ(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuEventCreate(&event, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuEventCreate(&other, 0), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventQuery(event), CUDA_SUCCESS);  // never recorded: nothing to wait for
  float time = 0;
  EXPECT_EQ(cu_.cuEventElapsedTime(&time, event, other), CUDA_ERROR_INVALID_HANDLE);
  node_.HoldCompletions(true);
  ASSERT_EQ(cu_.cuEventRecord(event, stream), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuEventRecord(other, stream), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventQuery(event), CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cu_.cuEventElapsedTime(&time, event, other), CUDA_ERROR_NOT_READY);
  ASSERT_EQ(cu_.cuStreamWaitEvent(nullptr, event, 0), CUDA_SUCCESS);
  node_.WaitForCount("StreamWaitEvent", 1);
  node_.HoldCompletions(false);
  EXPECT_EQ(cu_.cuEventSynchronize(event), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventSynchronize(other), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventElapsedTime(&time, event, other), CUDA_SUCCESS);
  EXPECT_EQ(time, 1.5f);
  EXPECT_EQ(cu_.cuEventDestroy_v2(event), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuEventQuery(event), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(Calls, AStreamsIdIsNotUsedAgainWhileItsWorkRuns) {
  const CUfunction kernel = Function("none");
  CUstream first = nullptr, second = nullptr, third = nullptr;
  ASSERT_EQ(cu_.cuStreamCreate(&first, 0), CUDA_SUCCESS);
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel, first), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamDestroy_v2(first), CUDA_SUCCESS);
  EXPECT_EQ(Launch(kernel, first), CUDA_ERROR_INVALID_HANDLE);
  ASSERT_EQ(cu_.cuStreamCreate(&second, 0), CUDA_SUCCESS);
  EXPECT_NE(second, first);
  node_.HoldCompletions(false);
  ASSERT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamCreate(&third, 0), CUDA_SUCCESS);
  EXPECT_EQ(third, first);
  const auto created = node_.seen("StreamCreate");
  EXPECT_EQ(created[0].As<wire::StreamCreate>().stream, created[2].As<wire::StreamCreate>().stream);
}

TEST_F(Calls, TheContextWaitsForDestroyedStreamsToo) {
  const CUfunction kernel = Function("none");
  CUstream stream = nullptr;
  ASSERT_EQ(cu_.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel, stream), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamDestroy_v2(stream), CUDA_SUCCESS);
  std::atomic<bool> done{false};
  std::thread waiter([&] {
    EXPECT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    EXPECT_EQ(cu_.cuCtxSynchronize(), CUDA_SUCCESS);
    done = true;
  });
  node_.WaitForSleeper();
  EXPECT_FALSE(done);
  node_.HoldCompletions(false);
  waiter.join();
}

TEST_F(Calls, TheLegacyStreamKnowsBlockingStreamsAndNotTheOthers) {
  const CUfunction kernel = Function("none");
  CUstream blocking = nullptr, nonblocking = nullptr;
  ASSERT_EQ(cu_.cuStreamCreate(&blocking, 0), CUDA_SUCCESS);
  ASSERT_EQ(cu_.cuStreamCreate(&nonblocking, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  node_.HoldCompletions(true);
  ASSERT_EQ(Launch(kernel, nonblocking), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  ASSERT_EQ(Launch(kernel, blocking), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamQuery(nullptr), CUDA_ERROR_NOT_READY);
  node_.HoldCompletions(false);
  EXPECT_EQ(cu_.cuStreamSynchronize(nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cu_.cuStreamQuery(blocking), CUDA_SUCCESS);
}

TEST_F(Calls, PerThreadStreamsAreMadeOnceAndGoWithTheirThread) {
  const CUfunction kernel = Function("none");
  std::thread([&] {
    ASSERT_EQ(cu_.cuCtxSetCurrent(context_), CUDA_SUCCESS);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(cu_.cuLaunchKernel_ptsz(kernel, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
                CUDA_SUCCESS);
    }
    EXPECT_EQ(cu_.cuStreamSynchronize_ptsz(nullptr), CUDA_SUCCESS);
  }).join();
  node_.WaitForCount("StreamDestroy", 1);
  const auto created = node_.seen("StreamCreate");
  ASSERT_EQ(created.size(), 1u);
  EXPECT_EQ(created[0].As<wire::StreamCreate>().nonblocking, 0u);
  for (const auto& launch : node_.seen("Launch")) {
    EXPECT_EQ(launch.As<wire::Launch>().stream, created[0].As<wire::StreamCreate>().stream);
  }
}

TEST_F(Calls, UnsupportedFunctionsSayTheirNameOnce) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(cu_.cuGraphicsUnregisterResource(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cu_.cuGraphicsUnregisterResource(nullptr), CUDA_ERROR_NOT_SUPPORTED);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_EQ(log.find("gpuloom: cuGraphicsUnregisterResource is not supported"), 0u) << log;
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1) << log;
}

TEST_F(Calls, PointersAreDescribedFromTheTable) {
  const CUdeviceptr device = Alloc(1000);
  CUpointer_attribute which[] = {
      CU_POINTER_ATTRIBUTE_CONTEXT,        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
      CU_POINTER_ATTRIBUTE_DEVICE_POINTER, CU_POINTER_ATTRIBUTE_HOST_POINTER,
      CU_POINTER_ATTRIBUTE_IS_MANAGED,     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  CUcontext context = nullptr;
  unsigned type = 99;
  CUdeviceptr pointer = 99;
  void* host = this;
  unsigned managed = 0;
  int ordinal = 99;
  void* values[] = {&context, &type, &pointer, &host, &managed, &ordinal};
  ASSERT_EQ(cu_.cuPointerGetAttributes(6, which, values, device + 10), CUDA_SUCCESS);
  EXPECT_EQ(context, context_);
  EXPECT_EQ(type, unsigned{CU_MEMORYTYPE_DEVICE});
  EXPECT_EQ(pointer, device + 10);
  EXPECT_EQ(host, nullptr);
  EXPECT_EQ(ordinal, 0);
  ASSERT_EQ(cu_.cuPointerGetAttributes(6, which, values, reinterpret_cast<CUdeviceptr>(this)),
            CUDA_SUCCESS);
  EXPECT_EQ(type, 0u);
  EXPECT_EQ(ordinal, CU_DEVICE_INVALID);
  EXPECT_EQ(cu_.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                      reinterpret_cast<CUdeviceptr>(this)),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(node_.seen().size(), 1u);  // only the allocation
}

}  // namespace
}  // namespace gpuloom
