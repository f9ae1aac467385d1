// SPDX-License-Identifier: Apache-2.0
// cuModule*: images loaded into the current context.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/jit_log.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// The error log is written also when the image cannot be read, but not for options that are wrong:
// then the buffers cannot be trusted (JitLog::Judge).
CUresult Load(CUmodule* handle, const void* image, const JitLog& jit_log,
              const Externals& externals = {}) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  CUDA_RETURN_IF_ERROR(jit_log.Judge());
  std::string ptx;
  std::string log;
  CUresult result = ReadImage(image, ptx, log);
  std::shared_ptr<LoadedModule> module;
  if (result == CUDA_SUCCESS) result = LoadModule(*context, ptx, module, log, externals);
  if (result != CUDA_SUCCESS) {
    jit_log.WriteError(log);
    return result;
  }
  jit_log.WriteSuccess(EntriesOf(*module->code));
  *handle = reinterpret_cast<CUmodule>(module.get());
  return CUDA_SUCCESS;
}

CUresult Require(CUmodule handle, std::shared_ptr<LoadedModule>& module) {
  CUDA_RETURN_IF_ERROR(Healthy());
  module = Registry<LoadedModule>::Instance().Find(handle);
  return module == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuModuleLoadData(CUmodule* module, const void* image) { return Load(module, image, {}); }

CUresult cuModuleLoadFatBinary(CUmodule* module, const void* image) {
  return Load(module, image, {});
}

CUresult cuModuleLoadDataEx(CUmodule* module, const void* image, unsigned option_count,
                            CUjit_option* options, void** values) {
  return Load(module, image, JitLog(option_count, options, values),
              ReadExternals(option_count, options, values));
}

CUresult cuModuleLoad(CUmodule* module, const char* path) {
  std::vector<char> content;
  // The path is judged before the driver's state, because the file is read first.
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadFile(path, content)) return CUDA_ERROR_FILE_NOT_FOUND;
  return Load(module, content.data(), {});
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char* path, CUjit_option* jit_options,
                               void** jit_values, unsigned jit_count, CUlibraryOption* options,
                               void** values, unsigned count) {
  std::vector<char> content;
  if (path == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!ReadFile(path, content)) return CUDA_ERROR_FILE_NOT_FOUND;
  return cuLibraryLoadData(library, content.data(), jit_options, jit_values, jit_count, options,
                           values, count);
}

CUresult cuModuleUnload(CUmodule handle) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(handle, module));
  // A library's instance is named by a module's handle, too (cuLibraryGetModule).
  if (module->library != nullptr) return CUDA_ERROR_INVALID_HANDLE;  // goes with its library
  Unload(module);
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(module_handle, module));
  if (handle == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  const Kernel* kernel = module->code->FindKernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  // The module's own settings: only a library's kernels share theirs with functions.
  *handle = reinterpret_cast<CUfunction>(module->FunctionOf(*kernel, nullptr).get());
  return CUDA_SUCCESS;
}

CUresult cuModuleGetFunctionCount(unsigned* count, CUmodule handle) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(handle, module));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(module->code->kernels().size());
  return CUDA_SUCCESS;
}

CUresult cuModuleEnumerateFunctions(CUfunction* functions, unsigned capacity, CUmodule handle) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(handle, module));
  if (functions == nullptr) return CUDA_ERROR_INVALID_VALUE;
  unsigned at = 0;
  // Returns as many as fit, in the order of the text, with the handles that cuModuleGetFunction
  // gives.
  for (const Kernel& kernel : module->code->kernels()) {
    if (at == capacity) break;
    functions[at++] = reinterpret_cast<CUfunction>(module->FunctionOf(kernel, nullptr).get());
  }
  return CUDA_SUCCESS;
}

CUresult cuModuleGetGlobal_v2(CUdeviceptr* pointer, size_t* size_bytes, CUmodule handle,
                              const char* name) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(Require(handle, module));
  if (name == nullptr || *name == 0 || (pointer == nullptr && size_bytes == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Global* global = module->code->FindGlobal(name);
  if (global == nullptr) {
    // As in the real driver, names of kernels and references are known, too.
    const bool is_other = module->code->FindKernel(name) != nullptr ||
                          (module->references != nullptr && module->references->HasName(name));
    return is_other ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_NOT_FOUND;
  }
  if (pointer != nullptr) *pointer = global->address;
  if (size_bytes != nullptr) *size_bytes = global->size_bytes;
  return CUDA_SUCCESS;
}

}  // extern "C"
