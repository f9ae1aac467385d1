// SPDX-License-Identifier: Apache-2.0
// Loading images, finding kernels and variables, and what is known about a kernel.
#include <algorithm>
#include <cstring>
#include <string>
#include <thread>

#include "tests/conformance/fixture.h"
#include "tests/conformance/kernels.h"

namespace gpuloom::conformance {
namespace {

using Module = WithKernels;

TEST_F(Module, FunctionsByName) {
  CUfunction function = nullptr;
  EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, "add"), CUDA_SUCCESS);
  EXPECT_NE(function, nullptr);
  EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, "subtract"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, "ad"), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(Cu().cuModuleGetFunction(&function, module_, ""), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuModuleGetFunction(nullptr, module_, "add"), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, VariablesByName) {
  CUdeviceptr address = 0;
  size_t size = 0;
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&address, &size, module_, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(Download<uint32_t>(address, 1)[0], 7u);
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&address, &size, module_, "table"), CUDA_SUCCESS);
  EXPECT_EQ(size, 256u);
  EXPECT_EQ(Download<uint32_t>(address, 64), std::vector<uint32_t>(64, 0));
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&address, nullptr, module_, "factor"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(nullptr, &size, module_, "factor"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(Cu().cuModuleGetGlobal_v2(&address, &size, module_, "nothing"), CUDA_ERROR_NOT_FOUND);
}

TEST_F(Module, VariablesBelongToTheLoadedModule) {
  CUmodule second = nullptr;
  ASSERT_EQ(Cu().cuModuleLoadData(&second, kKernels), CUDA_SUCCESS);
  CUdeviceptr mine = 0, theirs = 0, factor = 0;
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&mine, nullptr, module_, "counter"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&theirs, nullptr, second, "counter"), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleGetGlobal_v2(&factor, nullptr, module_, "factor"), CUDA_SUCCESS);
  EXPECT_NE(mine, theirs);

  const CUdeviceptr out = Alloc(4);
  const uint32_t ten = 10;
  ASSERT_EQ(Cu().cuMemcpyHtoD_v2(factor, &ten, sizeof(ten)), CUDA_SUCCESS);
  ASSERT_EQ(Launch(Function("use_globals"), 1, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 1)[0], 17u);
  CUfunction other = nullptr;
  ASSERT_EQ(Cu().cuModuleGetFunction(&other, second, "use_globals"), CUDA_SUCCESS);
  ASSERT_EQ(Launch(other, 1, 1, nullptr, out), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(out, 1)[0], 10u);  // 7 + 3: its own counter, its own factor
  EXPECT_EQ(Download<uint32_t>(mine, 1)[0], 17u);
  EXPECT_EQ(Cu().cuModuleUnload(second), CUDA_SUCCESS);
}

// However their declaration is spelt; the driver's compiler takes all of these.
TEST_F(Module, VariablesOfTheSameTextAreEachModulesOwn) {
  const std::string head = ".version 8.0\n.target sm_70\n.address_size 64\n";
  const std::string body =
      ".reg .u64 %rd<2>; .reg .u32 %r<3>;\n"
      "ld.param.u64 %rd1, [out];\nld.param.u32 %r1, [n];\n"
      "ld.global.u32 %r2, [counter];\nadd.u32 %r2, %r2, %r1;\nst.global.u32 [counter], %r2;\n"
      "st.global.u32 [%rd1], %r2;\nret;\n}\n";
  const std::string entry = ".visible .entry add_to(.param .u64 out, .param .u32 n)\n{\n";
  const std::string texts[] = {
      head + ".visible.global.u32 counter;\n" + entry + body,
      head + ".visible .global.align 4 .u32 counter;\n" + entry + body,
      head + ".visible .global/**/.u32 counter;\n" + entry + body,
      head + ".global//\n.u32 counter;\n" + entry + body,
      head + ".visible\f.global\f.u32\fcounter;\n" + entry + body,
      head + ".visible\r.global\r.u32\rcounter;\n" + entry + body,
      head + "// of a line \\\n.visible .global .u32 counter;\n" + entry + body,
      ".version 8.0 .target sm_70 .address_size 64 .global .u32 counter;" + entry + body,
  };
  const CUdeviceptr out = Alloc(4);
  for (const std::string& text : texts) {
    SCOPED_TRACE(text.substr(0, text.find(".entry")));
    CUmodule modules[2] = {};
    CUfunction functions[2] = {};
    for (int i = 0; i < 2; ++i) {
      ASSERT_EQ(Cu().cuModuleLoadData(&modules[i], text.c_str()), CUDA_SUCCESS);
      ASSERT_EQ(Cu().cuModuleGetFunction(&functions[i], modules[i], "add_to"), CUDA_SUCCESS);
    }
    ASSERT_EQ(Launch(functions[0], 1, 1, nullptr, out, 5u), CUDA_SUCCESS);
    ASSERT_EQ(Launch(functions[1], 1, 1, nullptr, out, 4u), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(out, 1)[0], 4u);
    ASSERT_EQ(Launch(functions[0], 1, 1, nullptr, out, 1u), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(out, 1)[0], 6u);
    for (const CUmodule module : modules) EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
  }
}

TEST_F(Module, BadImages) {
  CUmodule module = nullptr;
  EXPECT_EQ(Cu().cuModuleLoadData(&module, nullptr), CUDA_ERROR_INVALID_VALUE);
  const char broken[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry f() { this is no "
      "instruction; }\n";
  EXPECT_EQ(Cu().cuModuleLoadData(&module, broken), CUDA_ERROR_INVALID_PTX);
  const char unknown_register[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry f() { mov.u32 %r1, 5; ret; "
      "}\n";
  EXPECT_EQ(Cu().cuModuleLoadData(&module, unknown_register), CUDA_ERROR_INVALID_PTX);
  const char no_target[] = ".version 8.0\n";
  EXPECT_EQ(Cu().cuModuleLoadData(&module, no_target), CUDA_ERROR_INVALID_PTX);
  const unsigned char empty_fatbin[64] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
  EXPECT_EQ(Cu().cuModuleLoadData(&module, empty_fatbin), CUDA_ERROR_NO_BINARY_FOR_GPU);
}

// A library's code is looked at when it is used first, but no kernels of it are counted.
TEST_F(Module, BadLibrariesFailWhenTheyAreUsed) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "CUDA 12.4 has it first";
  const auto load = [](CUlibrary* library, const void* image) {
    return Cu().cuLibraryLoadData(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  CUlibrary library = nullptr;
  EXPECT_EQ(load(&library, nullptr), CUDA_ERROR_INVALID_VALUE);
  static const unsigned char zeros[4096] = {};
  static const unsigned char empty_elf[4096] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  const struct {
    const void* image;
    CUresult failure;
  } cases[] = {
      {"These are no kernels.", CUDA_ERROR_INVALID_IMAGE},
      {zeros, CUDA_ERROR_INVALID_IMAGE},
      {empty_elf, CUDA_ERROR_INVALID_IMAGE},
      {".version 8.0\n", CUDA_ERROR_INVALID_PTX},
      {".version 99.0\n.target sm_90\n.address_size 64\n", CUDA_ERROR_UNSUPPORTED_PTX_VERSION},
      {".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry f() { this is no "
       "instruction; }\n",
       CUDA_ERROR_INVALID_PTX},
  };
  for (const auto& [image, failure] : cases) {
    SCOPED_TRACE(static_cast<const char*>(image));
    ASSERT_EQ(load(&library, image), CUDA_SUCCESS);
    unsigned count = 77;
    EXPECT_EQ(Cu().cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
    EXPECT_EQ(count, 0u);
    CUkernel kernel = nullptr;
    CUmodule module = nullptr;
    EXPECT_EQ(Cu().cuLibraryEnumerateKernels(&kernel, 1, library), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "f"), failure);
    EXPECT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "f"), failure);
    EXPECT_EQ(Cu().cuLibraryGetModule(&module, library), failure);
    EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
  }
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
}

// The compiler's word for code that cannot be linked is the one for a lost context.
TEST_F(Module, CodeThatCannotBeLinkedHurtsNothingElse) {
  CUmodule module = nullptr;
  const char unknown_function[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.extern .func away();\n"
      ".visible .entry k()\n{\n  call.uni away, ();\n  ret;\n}\n";
  EXPECT_EQ(Cu().cuModuleLoadData(&module, unknown_function), CUDA_ERROR_INVALID_PTX);
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  const char unknown_variable[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.extern .global .u32 x;\n"
      ".visible .entry k(.param .u64 p)\n{\n.reg .b32 %r<2>;\n.reg .b64 %d<2>;\n"
      "ld.param.u64 %d0, [p];\nld.global.u32 %r0, [x];\nst.global.u32 [%d0], %r0;\nret;\n}\n";
  (void)Cu().cuModuleLoadData(&module, unknown_variable);  // real drivers find no fault in it
  EXPECT_EQ(Cu().cuCtxSynchronize(), CUDA_SUCCESS);
  ASSERT_EQ(Cu().cuModuleLoadData(&module, kKernels), CUDA_SUCCESS);
  EXPECT_EQ(Cu().cuModuleUnload(module), CUDA_SUCCESS);
}

TEST_F(Module, ErrorLogNamesTheLine) {
  const char broken[] =
      ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry f()\n{\n  nonsense.u32 5;\n"
      "  ret;\n}\n";
  char log[2048] = {};
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof(log))};
  CUmodule module = nullptr;
  EXPECT_EQ(Cu().cuModuleLoadDataEx(&module, broken, 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_NE(std::string(log).find("line 6"), std::string::npos) << log;
}

TEST_F(Module, Libraries) {
  CUlibrary library = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  CUkernel kernel = nullptr;
  EXPECT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "missing"), CUDA_ERROR_NOT_FOUND);
  ASSERT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "increment"), CUDA_SUCCESS);
  CUfunction function = nullptr;
  ASSERT_EQ(Cu().cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  const CUdeviceptr counter = Alloc(4);
  ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
  // The CUDA runtime passes a CUkernel wherever a CUfunction is asked for.
  ASSERT_EQ(Launch(reinterpret_cast<CUfunction>(kernel), 1, 32, nullptr, counter), CUDA_SUCCESS);
  ASSERT_EQ(Launch(function, 1, 32, nullptr, counter), CUDA_SUCCESS);
  EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 64u);
  CUdeviceptr address = 0;
  size_t size = 0;
  ASSERT_EQ(Cu().cuLibraryGetGlobal(&address, &size, library, "counter"), CUDA_SUCCESS);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
}

TEST_F(Module, KernelAttributes) {
  CUfunction reverse = Function("reverse");
  int value = -1;
  ASSERT_EQ(Cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, reverse),
            CUDA_SUCCESS);
  EXPECT_GE(value, 1);
  EXPECT_LE(value, 1024);
  ASSERT_EQ(Cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, reverse),
            CUDA_SUCCESS);
  EXPECT_GE(value, 0);
  EXPECT_LE(value, 4096);  // the driver may reserve some for itself
  ASSERT_EQ(Cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_PTX_VERSION, reverse), CUDA_SUCCESS);
  EXPECT_EQ(value, 70);
  ASSERT_EQ(Cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_NUM_REGS, reverse), CUDA_SUCCESS);
  EXPECT_GT(value, 0);
  EXPECT_EQ(Cu().cuFuncGetAttribute(&value, static_cast<CUfunction_attribute>(1000), reverse),
            CUDA_ERROR_INVALID_VALUE);

  ASSERT_EQ(
      Cu().cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 56 << 10),
      CUDA_SUCCESS);
  ASSERT_EQ(
      Cu().cuFuncGetAttribute(&value, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, reverse),
      CUDA_SUCCESS);
  EXPECT_EQ(value, 56 << 10);
  EXPECT_EQ(
      Cu().cuFuncSetAttribute(reverse, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 16 << 20),
      CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, ParameterLayout) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "CUDA 12.4 has it first";
  CUfunction scatter = Function("scatter");
  const std::pair<size_t, size_t> expected[] = {{0, 1},   {8, 8},  {16, 2},
                                                {20, 20}, {40, 8}, {48, 8}};
  size_t offset = 0, size = 0;
  for (size_t i = 0; i < std::size(expected); ++i) {
    ASSERT_EQ(Cu().cuFuncGetParamInfo(scatter, i, &offset, &size), CUDA_SUCCESS) << i;
    EXPECT_EQ(offset, expected[i].first) << i;
    EXPECT_EQ(size, expected[i].second) << i;
  }
  EXPECT_EQ(Cu().cuFuncGetParamInfo(scatter, std::size(expected), &offset, &size),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, Occupancy) {
  int blocks = 0;
  ASSERT_EQ(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, Function("add"), 256, 0),
            CUDA_SUCCESS);
  EXPECT_GE(blocks, 1);
  EXPECT_LE(blocks, 32);
  EXPECT_EQ(Cu().cuOccupancyMaxActiveBlocksPerMultiprocessor(nullptr, Function("add"), 256, 0),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, ALibraryNeedsNoCurrentContext) {
  // As in threads of PyTorch's autograd, where cuDNN loads its engines.
  std::thread([] {
    CUcontext current = nullptr;
    ASSERT_EQ(Cu().cuCtxGetCurrent(&current), CUDA_SUCCESS);
    ASSERT_EQ(current, nullptr);
    CUlibrary library;
    CUlibraryOption preserved = CU_LIBRARY_BINARY_IS_PRESERVED;  // takes no value
    ASSERT_EQ(
        Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, &preserved, nullptr, 1),
        CUDA_SUCCESS);
    CUkernel kernel;
    EXPECT_EQ(Cu().cuLibraryGetKernel(&kernel, library, "add"), CUDA_SUCCESS);
    int threads = 0;
    EXPECT_EQ(
        Cu().cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0),
        CUDA_SUCCESS);
    EXPECT_GT(threads, 0);
    EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
  }).join();
}

TEST_F(Module, AllItsFunctions) {
  if (IsDriverBelow(12040)) GTEST_SKIP() << "CUDA 12.4 has it first";
  unsigned count = 0;
  ASSERT_EQ(Cu().cuModuleGetFunctionCount(&count, module_), CUDA_SUCCESS);
  EXPECT_EQ(count, 11u);
  std::vector<CUfunction> functions(count);
  ASSERT_EQ(Cu().cuModuleEnumerateFunctions(functions.data(), count, module_), CUDA_SUCCESS);
  std::vector<std::string> names;
  for (CUfunction function : functions) {
    const char* name = nullptr;
    ASSERT_EQ(Cu().cuFuncGetName(&name, function), CUDA_SUCCESS);
    names.push_back(name);
    CUmodule module = nullptr;
    ASSERT_EQ(Cu().cuFuncGetModule(&module, function), CUDA_SUCCESS);
    EXPECT_EQ(module, module_);
    // A driver that loads lazily knows nothing of it yet.
    CUfunctionLoadingState state = CU_FUNCTION_LOADING_STATE_MAX;
    ASSERT_EQ(Cu().cuFuncIsLoaded(&state, function), CUDA_SUCCESS);
    int threads = 0;
    const CUresult early =
        Cu().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function);
    EXPECT_EQ(early, state == CU_FUNCTION_LOADING_STATE_LOADED ? CUDA_SUCCESS
                                                               : CUDA_ERROR_FUNCTION_NOT_LOADED);
    ASSERT_EQ(Cu().cuFuncLoad(function), CUDA_SUCCESS);
    EXPECT_EQ(Cu().cuFuncGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function),
              CUDA_SUCCESS);
    EXPECT_EQ(threads, 1024);
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(names, (std::vector<std::string>{"add", "append", "fill", "increment", "reverse",
                                             "say_and_spin", "scatter", "spin", "store",
                                             "use_globals", "wait_for"}));
  // One that was listed runs.
  for (CUfunction function : functions) {
    const char* name = nullptr;
    ASSERT_EQ(Cu().cuFuncGetName(&name, function), CUDA_SUCCESS);
    if (std::string(name) != "increment") continue;
    const CUdeviceptr counter = Alloc(4);
    ASSERT_EQ(Cu().cuMemsetD32_v2(counter, 0, 1), CUDA_SUCCESS);
    ASSERT_EQ(Launch(function, 2, 32, nullptr, counter), CUDA_SUCCESS);
    EXPECT_EQ(Download<uint32_t>(counter, 1)[0], 64u);
  }
  EXPECT_EQ(Cu().cuModuleGetFunctionCount(nullptr, module_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(Module, AllKernelsOfALibrary) {
  if (IsDriverBelow(12050)) GTEST_SKIP() << "CUDA 12.5 has it first";
  CUlibrary library = nullptr;
  ASSERT_EQ(Cu().cuLibraryLoadData(&library, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_SUCCESS);
  unsigned count = 0;
  ASSERT_EQ(Cu().cuLibraryGetKernelCount(&count, library), CUDA_SUCCESS);
  EXPECT_EQ(count, 11u);
  std::vector<CUkernel> kernels(count + 2);
  ASSERT_EQ(Cu().cuLibraryEnumerateKernels(kernels.data(), count, library), CUDA_SUCCESS);
  EXPECT_EQ(kernels[count], nullptr);
  for (unsigned i = 0; i < count; ++i) {
    const char* name = nullptr;
    ASSERT_EQ(Cu().cuKernelGetName(&name, kernels[i]), CUDA_SUCCESS);
    CUkernel by_name = nullptr;
    ASSERT_EQ(Cu().cuLibraryGetKernel(&by_name, library, name), CUDA_SUCCESS);
    EXPECT_EQ(by_name, kernels[i]);
    CUlibrary owner = nullptr;
    ASSERT_EQ(Cu().cuKernelGetLibrary(&owner, kernels[i]), CUDA_SUCCESS);
    EXPECT_EQ(owner, library);
  }
  EXPECT_EQ(Cu().cuLibraryGetKernelCount(nullptr, library), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(Cu().cuLibraryUnload(library), CUDA_SUCCESS);
}

}  // namespace
}  // namespace gpuloom::conformance
