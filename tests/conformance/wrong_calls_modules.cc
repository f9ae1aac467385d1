// SPDX-License-Identifier: Apache-2.0
// Images, modules, libraries, functions and kernels.
#include <cstring>
#include <string>

#include "tests/conformance/wrong_calls.h"

namespace gpuloom::conformance {

void WrongModules(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUmodule module = nullptr, other = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  CUtexref texture = nullptr;
  CUsurfref surface = nullptr;
  CUlinkState link = nullptr;
  size_t size_bytes = 0;
  unsigned count = 0;
  void* image = nullptr;
  CUjit_option option = CU_JIT_MAX_REGISTERS;
  void* value = nullptr;
  c("cuModuleLoadData without output", [&] { return cu.cuModuleLoadData(nullptr, kKernels); });
  c("cuModuleLoadData without an image", [&] { return cu.cuModuleLoadData(&other, nullptr); });
  c("cuModuleLoadDataEx without an image",
    [&] { return cu.cuModuleLoadDataEx(&other, nullptr, 0, nullptr, nullptr); });
  c("cuModuleLoadDataEx without its options",
    [&] { return cu.cuModuleLoadDataEx(&other, kKernels, 1, nullptr, nullptr); });
  c("cuModuleLoadDataEx with an unknown option", [&] {
    option = static_cast<CUjit_option>(999);
    return cu.cuModuleLoadDataEx(&other, kKernels, 1, &option, &value);
  });
  c("cuModuleLoad without a name", [&] { return cu.cuModuleLoad(&other, nullptr); });
  c("cuModuleLoad of no file", [&] { return cu.cuModuleLoad(&other, "/nowhere/kernels.cubin"); });
  c("cuModuleLoad of a folder", [&] { return cu.cuModuleLoad(&other, "/"); });
  c("cuModuleLoadFatBinary without an image",
    [&] { return cu.cuModuleLoadFatBinary(&other, nullptr); });
  c("cuModuleUnload of none", [&] { return cu.cuModuleUnload(nullptr); });
  c("cuModuleGetFunction of no module",
    [&] { return cu.cuModuleGetFunction(&function, nullptr, "add"); });
  c("cuModuleGetLoadingMode without output", [&] { return cu.cuModuleGetLoadingMode(nullptr); });
  if (!c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels))) return;
  c("cuModuleGetFunction without output",
    [&] { return cu.cuModuleGetFunction(nullptr, module, "add"); });
  c("cuModuleGetFunction without a name",
    [&] { return cu.cuModuleGetFunction(&function, module, nullptr); });
  c("cuModuleGetFunction of an empty name",
    [&] { return cu.cuModuleGetFunction(&function, module, ""); });
  c("cuModuleGetFunction of no such name",
    [&] { return cu.cuModuleGetFunction(&function, module, "subtract"); });
  c("cuModuleGetFunction of a variable",
    [&] { return cu.cuModuleGetFunction(&function, module, "counter"); });
  c("cuModuleGetGlobal without a name",
    [&] { return cu.cuModuleGetGlobal_v2(&address, &size_bytes, module, nullptr); });
  c("cuModuleGetGlobal of no such name",
    [&] { return cu.cuModuleGetGlobal_v2(&address, &size_bytes, module, "nothing"); });
  c("cuModuleGetGlobal of a kernel",
    [&] { return cu.cuModuleGetGlobal_v2(&address, &size_bytes, module, "add"); });
  c("cuModuleGetGlobal of no module",
    [&] { return cu.cuModuleGetGlobal_v2(&address, &size_bytes, nullptr, "counter"); });
  c("cuModuleGetGlobal without outputs",
    [&] { return cu.cuModuleGetGlobal_v2(nullptr, nullptr, module, "counter"); });
  c("cuModuleGetTexRef of no such name",
    [&] { return cu.cuModuleGetTexRef(&texture, module, "nothing"); });
  c("cuModuleGetSurfRef of no such name",
    [&] { return cu.cuModuleGetSurfRef(&surface, module, "nothing"); });
  c("cuModuleGetFunctionCount without output",
    [&] { return cu.cuModuleGetFunctionCount(nullptr, module); });
  c("cuModuleGetFunctionCount of no module",
    [&] { return cu.cuModuleGetFunctionCount(&count, nullptr); });
  c("cuModuleEnumerateFunctions without output",
    [&] { return cu.cuModuleEnumerateFunctions(nullptr, 1, module); });
  c("cuModuleEnumerateFunctions of none",
    [&] { return cu.cuModuleEnumerateFunctions(&function, 0, module); });
  c("cuLinkCreate without output",
    [&] { return cu.cuLinkCreate_v2(0, nullptr, nullptr, nullptr); });
  c("cuLinkCreate without its options",
    [&] { return cu.cuLinkCreate_v2(1, nullptr, nullptr, &link); });
  if (!c.Has("cuLinkCreate", cu.cuLinkCreate_v2(0, nullptr, nullptr, &link))) return;
  c("cuLinkAddData of an unknown kind", [&] {
    return cu.cuLinkAddData_v2(link, static_cast<CUjitInputType>(99), const_cast<char*>(kKernels),
                               sizeof(kKernels), "a", 0, nullptr, nullptr);
  });
  c("cuLinkAddData without data", [&] {
    return cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, nullptr, 0, "a", 0, nullptr, nullptr);
  });
  c("cuLinkAddData of garbage", [&] {
    char text[] = "garbage";
    return cu.cuLinkAddData_v2(link, CU_JIT_INPUT_PTX, text, sizeof(text), "a", 0, nullptr,
                               nullptr);
  });
  c("cuLinkAddFile of no file", [&] {
    return cu.cuLinkAddFile_v2(link, CU_JIT_INPUT_PTX, "/nowhere/kernels.ptx", 0, nullptr, nullptr);
  });
  c("cuLinkComplete without output", [&] { return cu.cuLinkComplete(link, nullptr, nullptr); });
  c("cuLinkComplete of none", [&] { return cu.cuLinkComplete(nullptr, &image, &size_bytes); });
  c("cuLinkDestroy of none", [&] { return cu.cuLinkDestroy(nullptr); });
}

void WrongImages(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUmodule module = nullptr;
  char image[4096] = {};
  const auto load = [&](const char* text) { return cu.cuModuleLoadData(&module, text); };
  c("cuModuleLoadData of zeros", [&] { return cu.cuModuleLoadData(&module, image); });
  c("cuModuleLoadData of words", [&] { return load("These are no kernels."); });
  c("cuModuleLoadData of PTX without a target", [&] { return load(".version 8.0\n"); });
  c("cuModuleLoadData of PTX of a later version",
    [&] { return load(".version 99.0\n.target sm_90\n.address_size 64\n"); });
  c("cuModuleLoadData of PTX for an unknown target",
    [&] { return load(".version 8.0\n.target sm_999\n.address_size 64\n"); });
  c("cuModuleLoadData of PTX for a later target",
    [&] { return load(".version 8.7\n.target sm_120\n.address_size 64\n"); });
  c("cuModuleLoadData of PTX with a wrong instruction", [&] {
    return load(
        ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n  fly.b32;\n}\n");
  });
  c("cuModuleLoadData of PTX that ends early", [&] {
    return load(".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n  ret;\n");
  });
  c("cuModuleLoadData of PTX that calls an unknown function", [&] {
    return load(
        ".version 8.0\n.target sm_70\n.address_size 64\n.extern .func away();\n"
        ".visible .entry k()\n{\n  call.uni away, ();\n  ret;\n}\n");
  });
  c("cuModuleLoadData of PTX without kernels",
    [&] { return load(".version 8.0\n.target sm_70\n.address_size 64\n"); });
  c("cuModuleLoadData of an empty ELF file", [&] {
    std::memcpy(image, "\177ELF\2\1\1", 7);
    return cu.cuModuleLoadData(&module, image);
  });
  c("cuModuleLoadData of a fatbin without members", [&] {
    const unsigned char header[16] = {0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0};
    std::memcpy(image, header, sizeof(header));
    return cu.cuModuleLoadData(&module, image);
  });
  c("cuModuleLoadFatBinary of words",
    [&] { return cu.cuModuleLoadFatBinary(&module, "These are no kernels."); });
}

void WrongLibraries(Calls& c, const Place& at) {
  const Driver& cu = Cu();
  CUlibrary library = nullptr, other = nullptr;
  CUkernel kernel = nullptr;
  CUmodule module = nullptr;
  CUfunction function = nullptr;
  CUdeviceptr address = 0;
  size_t size_bytes = 0;
  void* pointer = nullptr;
  int number = 0;
  unsigned count = 0;
  const char* name = nullptr;
  const auto load = [&](CUlibrary* out, const void* image) {
    return cu.cuLibraryLoadData(out, image, nullptr, nullptr, 0, nullptr, nullptr, 0);
  };
  c("cuLibraryLoadData without output", [&] { return load(nullptr, kKernels); });
  c("cuLibraryLoadData without an image", [&] { return load(&other, nullptr); });
  c("cuLibraryLoadData of words", [&] { return load(&other, "These are no kernels."); });
  c("cuLibraryGetKernel of words", [&] { return cu.cuLibraryGetKernel(&kernel, other, "add"); });
  c("cuLibraryGetKernelCount of words", [&] { return cu.cuLibraryGetKernelCount(&count, other); });
  c("cuLibraryGetModule of words", [&] { return cu.cuLibraryGetModule(&module, other); });
  c("cuLibraryGetGlobal of words",
    [&] { return cu.cuLibraryGetGlobal(&address, &size_bytes, other, "counter"); });
  c("cuLibraryUnload of words", [&] { return cu.cuLibraryUnload(other); });
  const struct {
    const char* what;
    const char* text;
  } wrong[] = {
      {"a wrong instruction",
       ".version 8.0\n.target sm_70\n.address_size 64\n.visible .entry k()\n{\n  fly.b32;\n}\n"},
      {"a later version", ".version 99.0\n.target sm_90\n.address_size 64\n"},
      {"a later target", ".version 8.7\n.target sm_120\n.address_size 64\n"},
      {"an unknown function",
       ".version 8.0\n.target sm_70\n.address_size 64\n.extern .func away();\n"
       ".visible .entry k()\n{\n  call.uni away, ();\n  ret;\n}\n"},
  };
  for (const auto& each : wrong) {
    const std::string with = std::string(" of PTX with ") + each.what;
    CUlibrary made = nullptr;
    c("cuLibraryLoadData" + with, [&] { return load(&made, each.text); });
    c("cuLibraryGetKernelCount" + with, [&] { return cu.cuLibraryGetKernelCount(&count, made); });
    c("cuLibraryGetKernel" + with, [&] { return cu.cuLibraryGetKernel(&kernel, made, "k"); });
    c("cuLibraryGetModule" + with, [&] { return cu.cuLibraryGetModule(&module, made); });
    c("cuLibraryUnload" + with, [&] { return cu.cuLibraryUnload(made); });
  }
  const unsigned char elf[4096] = {0x7f, 'E', 'L', 'F', 2, 1, 1};
  c("cuLibraryLoadData of an empty ELF file", [&] { return load(&other, elf); });
  c("cuLibraryLoadData without its options", [&] {
    return cu.cuLibraryLoadData(&other, kKernels, nullptr, nullptr, 0, nullptr, nullptr, 1);
  });
  c("cuLibraryLoadFromFile of no file", [&] {
    return cu.cuLibraryLoadFromFile(&other, "/nowhere/kernels.cubin", nullptr, nullptr, 0, nullptr,
                                    nullptr, 0);
  });
  c("cuLibraryUnload of none", [&] { return cu.cuLibraryUnload(nullptr); });
  c("cuLibraryGetKernel of no library",
    [&] { return cu.cuLibraryGetKernel(&kernel, nullptr, "add"); });
  c("cuKernelGetFunction of none", [&] { return cu.cuKernelGetFunction(&function, nullptr); });
  c("cuKernelGetAttribute of none", [&] {
    return cu.cuKernelGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr, at.device);
  });
  if (!c.Has("cuLibraryLoadData", load(&library, kKernels))) return;
  c("cuLibraryGetKernel without output",
    [&] { return cu.cuLibraryGetKernel(nullptr, library, "add"); });
  c("cuLibraryGetKernel without a name",
    [&] { return cu.cuLibraryGetKernel(&kernel, library, nullptr); });
  c("cuLibraryGetKernel of no such name",
    [&] { return cu.cuLibraryGetKernel(&kernel, library, "subtract"); });
  c("cuLibraryGetModule without output", [&] { return cu.cuLibraryGetModule(nullptr, library); });
  c("cuLibraryGetModule of no library", [&] { return cu.cuLibraryGetModule(&module, nullptr); });
  c("cuLibraryGetGlobal of no such name",
    [&] { return cu.cuLibraryGetGlobal(&address, &size_bytes, library, "nothing"); });
  c("cuLibraryGetGlobal without a name",
    [&] { return cu.cuLibraryGetGlobal(&address, &size_bytes, library, nullptr); });
  c("cuLibraryGetGlobal without outputs",
    [&] { return cu.cuLibraryGetGlobal(nullptr, nullptr, library, "counter"); });
  c("cuLibraryGetManaged of no such name",
    [&] { return cu.cuLibraryGetManaged(&address, &size_bytes, library, "nothing"); });
  c("cuLibraryGetManaged of what is not managed",
    [&] { return cu.cuLibraryGetManaged(&address, &size_bytes, library, "counter"); });
  c("cuLibraryGetManaged without outputs",
    [&] { return cu.cuLibraryGetManaged(nullptr, nullptr, library, "counter"); });
  c("cuLibraryGetManaged without a name",
    [&] { return cu.cuLibraryGetManaged(&address, &size_bytes, library, nullptr); });
  c("cuLibraryGetManaged of no library",
    [&] { return cu.cuLibraryGetManaged(&address, &size_bytes, nullptr, "counter"); });
  c("cuLibraryGetUnifiedFunction of no such name",
    [&] { return cu.cuLibraryGetUnifiedFunction(&pointer, library, "nothing"); });
  c("cuLibraryGetKernelCount without output",
    [&] { return cu.cuLibraryGetKernelCount(nullptr, library); });
  c("cuLibraryGetKernelCount of no library",
    [&] { return cu.cuLibraryGetKernelCount(&count, nullptr); });
  c("cuLibraryEnumerateKernels without output",
    [&] { return cu.cuLibraryEnumerateKernels(nullptr, 1, library); });
  if (!c.Has("cuLibraryGetKernel", cu.cuLibraryGetKernel(&kernel, library, "add"))) return;
  c("cuKernelGetFunction without output", [&] { return cu.cuKernelGetFunction(nullptr, kernel); });
  c("cuKernelGetName without output", [&] { return cu.cuKernelGetName(nullptr, kernel); });
  c("cuKernelGetName of none", [&] { return cu.cuKernelGetName(&name, nullptr); });
  c("cuKernelGetLibrary without output", [&] { return cu.cuKernelGetLibrary(nullptr, kernel); });
  c("cuKernelGetAttribute without output", [&] {
    return cu.cuKernelGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, at.device);
  });
  c("cuKernelGetAttribute unknown", [&] {
    return cu.cuKernelGetAttribute(&number, static_cast<CUfunction_attribute>(99), kernel,
                                   at.device);
  });
  c("cuKernelGetAttribute on no device",
    [&] { return cu.cuKernelGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, kernel, 1000); });
  c("cuKernelSetAttribute of the registers",
    [&] { return cu.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_NUM_REGS, 8, kernel, at.device); });
  c("cuKernelSetAttribute of 1 MiB of shared memory", [&] {
    return cu.cuKernelSetAttribute(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20, kernel,
                                   at.device);
  });
  c("cuKernelSetCacheConfig unknown",
    [&] { return cu.cuKernelSetCacheConfig(kernel, static_cast<CUfunc_cache>(9), at.device); });
  size_t offset = 0;
  c("cuKernelGetParamInfo behind the last one",
    [&] { return cu.cuKernelGetParamInfo(kernel, 4, &offset, &size_bytes); });
  c("cuKernelGetParamInfo without outputs",
    [&] { return cu.cuKernelGetParamInfo(kernel, 0, nullptr, nullptr); });
}

void WrongFunctions(Calls& c, const Place&) {
  const Driver& cu = Cu();
  CUmodule module = nullptr, other = nullptr;
  CUfunction add = nullptr;
  int number = 0;
  size_t offset = 0, size_bytes = 0;
  const char* name = nullptr;
  CUfunctionLoadingState state;
  const auto set = [&](int attribute, int value) {
    return cu.cuFuncSetAttribute(add, static_cast<CUfunction_attribute>(attribute), value);
  };
  c("cuFuncGetAttribute of none",
    [&] { return cu.cuFuncGetAttribute(&number, CU_FUNC_ATTRIBUTE_NUM_REGS, nullptr); });
  c("cuFuncSetAttribute of none",
    [&] { return set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 0); });
  c("cuFuncSetCacheConfig of none",
    [&] { return cu.cuFuncSetCacheConfig(nullptr, CU_FUNC_CACHE_PREFER_L1); });
  c("cuFuncGetModule of none", [&] { return cu.cuFuncGetModule(&other, nullptr); });
  c("cuFuncGetName of none", [&] { return cu.cuFuncGetName(&name, nullptr); });
  c("cuFuncLoad of none", [&] { return cu.cuFuncLoad(nullptr); });
  c("cuFuncIsLoaded of none", [&] { return cu.cuFuncIsLoaded(&state, nullptr); });
  if (!c.Has("cuModuleLoadData", cu.cuModuleLoadData(&module, kKernels))) return;
  if (!c.Has("cuModuleGetFunction", cu.cuModuleGetFunction(&add, module, "add"))) return;
  c("cuFuncGetAttribute without output",
    [&] { return cu.cuFuncGetAttribute(nullptr, CU_FUNC_ATTRIBUTE_NUM_REGS, add); });
  c("cuFuncGetAttribute unknown",
    [&] { return cu.cuFuncGetAttribute(&number, static_cast<CUfunction_attribute>(99), add); });
  c("cuFuncGetAttribute -1",
    [&] { return cu.cuFuncGetAttribute(&number, static_cast<CUfunction_attribute>(-1), add); });
  c("cuFuncSetAttribute unknown", [&] { return set(99, 0); });
  c("cuFuncSetAttribute of the registers", [&] { return set(CU_FUNC_ATTRIBUTE_NUM_REGS, 8); });
  c("cuFuncSetAttribute of the binary version",
    [&] { return set(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 90); });
  c("cuFuncSetAttribute of 1 MiB of shared memory",
    [&] { return set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 1 << 20); });
  c("cuFuncSetAttribute of shared memory below 0",
    [&] { return set(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, -1); });
  c("cuFuncSetAttribute of a carveout of 101",
    [&] { return set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, 101); });
  c("cuFuncSetAttribute of a carveout of -2",
    [&] { return set(CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, -2); });
  c("cuFuncSetAttribute of a cluster of -1",
    [&] { return set(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, -1); });
  c("cuFuncSetAttribute of an unknown cluster policy",
    [&] { return set(CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE, 99); });
  c("cuFuncSetCacheConfig unknown",
    [&] { return cu.cuFuncSetCacheConfig(add, static_cast<CUfunc_cache>(9)); });
  c("cuFuncSetSharedMemConfig unknown",
    [&] { return cu.cuFuncSetSharedMemConfig(add, static_cast<CUsharedconfig>(9)); });
  c("cuFuncGetModule without output", [&] { return cu.cuFuncGetModule(nullptr, add); });
  c("cuFuncGetName without output", [&] { return cu.cuFuncGetName(nullptr, add); });
  c("cuFuncIsLoaded without output", [&] { return cu.cuFuncIsLoaded(nullptr, add); });
  c("cuFuncGetParamInfo behind the last one",
    [&] { return cu.cuFuncGetParamInfo(add, 4, &offset, &size_bytes); });
  c("cuFuncGetParamInfo of none",
    [&] { return cu.cuFuncGetParamInfo(nullptr, 0, &offset, &size_bytes); });
  c("cuFuncGetParamInfo without outputs",
    [&] { return cu.cuFuncGetParamInfo(add, 0, nullptr, nullptr); });
}

}  // namespace gpuloom::conformance
