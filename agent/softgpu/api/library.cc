// SPDX-License-Identifier: Apache-2.0
// cuLibrary* and cuKernel*: images that no context owns, and their kernels.
#include "agent/softgpu/driver/library.h"

#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <string>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/jit_log.h"
#include "agent/softgpu/driver/registry.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Libraries and their kernels need no context, only a driver without fault.
CUresult Require(CUlibrary handle, std::shared_ptr<LoadedLibrary>& library) {
  CUDA_RETURN_IF_ERROR(Healthy());
  library = Registry<LoadedLibrary>::Instance().Find(handle);
  return library == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

CUresult Require(CUkernel handle, std::shared_ptr<LibraryKernel>& kernel) {
  CUDA_RETURN_IF_ERROR(Healthy());
  kernel = Registry<LibraryKernel>::Instance().Find(handle);
  return kernel == nullptr ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

// The library's instance in the current context.
CUresult RequireModule(CUlibrary handle, std::shared_ptr<LoadedModule>& module) {
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  std::shared_ptr<LoadedLibrary> library;
  const CUresult result = Require(handle, library);
  return result != CUDA_SUCCESS ? result : library->ModuleIn(*context, module);
}

// With lazy loading a library is looked at when it is used first. Here it is compiled at once, so that
// what this machine cannot execute is named early; the error is that of the first use, as on the real
// driver.
// A failure that is an image's own. One of memory is told at once, since the next attempt may
// succeed.
bool IsDeferredError(CUresult failure) {
  if (failure != CUDA_ERROR_INVALID_IMAGE && failure != CUDA_ERROR_INVALID_PTX &&
      failure != CUDA_ERROR_UNSUPPORTED_PTX_VERSION) {
    return false;
  }
  const char* mode = std::getenv("CUDA_MODULE_LOADING");
  return mode == nullptr || strcasecmp(mode, "EAGER") != 0;
}

}  // namespace

extern "C" {

CUresult cuLibraryLoadData(CUlibrary* handle, const void* image, CUjit_option* jit_options,
                           void** jit_values, unsigned jit_count, CUlibraryOption*, void**,
                           unsigned) {
  CUDA_RETURN_IF_ERROR(Healthy());
  if (handle == nullptr || (jit_count != 0 && jit_options == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const JitLog jit_log(jit_count, jit_options, jit_values);
  CUDA_RETURN_IF_ERROR(jit_log.Judge());
  std::string ptx;
  std::string log;
  CUresult result = ReadImage(image, ptx, log);
  Context* context = CurrentContext();
  // The current context only serves to load early, where there is one that lives: a library is
  // loaded into others when it is used there.
  if (context != nullptr && !context->alive) context = nullptr;
  if (context != nullptr) context = &context->Owner();
  std::shared_ptr<LoadedLibrary> library;
  if (result == CUDA_SUCCESS) {
    result = LoadLibrary(context, std::move(ptx), library, log,
                         ReadExternals(jit_count, jit_options, jit_values));
  }
  if (result == CUDA_SUCCESS) {
    jit_log.WriteSuccess(EntriesOf(*library->blueprint));
  } else {
    jit_log.WriteError(log);
    if (!log.empty())
      PrintLine(log);  // the runtime loads without a log buffer, so nobody else would tell
  }
  if (IsDeferredError(result)) {
    // A library without code: everything that uses it returns the failure, and unloading works as
    // for any other.
    library = std::make_shared<LoadedLibrary>();
    library->broken = result;
    Registry<LoadedLibrary>::Instance().Add(library);
    result = CUDA_SUCCESS;
  }
  if (result == CUDA_SUCCESS) *handle = reinterpret_cast<CUlibrary>(library.get());
  return result;
}

CUresult cuLibraryUnload(CUlibrary handle) {
  CUDA_RETURN_IF_ERROR(Ready());
  // Taken before unloading, so that of two threads that unload it one wins.
  const auto library = Registry<LoadedLibrary>::Instance().Take(handle);
  if (library == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  Unload(library);
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary handle, const char* name) {
  std::shared_ptr<LoadedLibrary> library;
  CUDA_RETURN_IF_ERROR(Require(handle, library));
  if (kernel == nullptr || name == nullptr || *name == 0) return CUDA_ERROR_INVALID_VALUE;
  if (library->broken != CUDA_SUCCESS) return library->broken;
  // By name in the blueprint: no context is needed to find a kernel.
  for (const auto& candidate : library->kernels) {
    if (candidate->kernel->name != name) continue;
    *kernel = reinterpret_cast<CUkernel>(candidate.get());
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_NOT_FOUND;
}

CUresult cuLibraryGetKernelCount(unsigned* count, CUlibrary handle) {
  std::shared_ptr<LoadedLibrary> library;
  CUDA_RETURN_IF_ERROR(Require(handle, library));
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = static_cast<unsigned>(library->kernels.size());
  return CUDA_SUCCESS;
}

CUresult cuLibraryEnumerateKernels(CUkernel* kernels, unsigned capacity, CUlibrary handle) {
  std::shared_ptr<LoadedLibrary> library;
  CUDA_RETURN_IF_ERROR(Require(handle, library));
  if (kernels == nullptr) return CUDA_ERROR_INVALID_VALUE;
  for (unsigned i = 0; i < capacity && i < library->kernels.size(); ++i) {
    kernels[i] = reinterpret_cast<CUkernel>(library->kernels[i].get());
  }
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetModule(CUmodule* handle, CUlibrary library) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(RequireModule(library, module));
  if (handle == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *handle = reinterpret_cast<CUmodule>(module.get());
  return CUDA_SUCCESS;
}

CUresult cuLibraryGetGlobal(CUdeviceptr* pointer, size_t* size_bytes, CUlibrary library,
                            const char* name) {
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(RequireModule(library, module));
  // Through the module's handle, which judges the other arguments.
  return cuModuleGetGlobal_v2(pointer, size_bytes, reinterpret_cast<CUmodule>(module.get()), name);
}

// Every variable here lies where the host can reach it, so a managed one is where the others are. They
// exist without a context, too: CUDA's runtime asks for them before it has one, and uses the first
// device's primary context afterwards.
CUresult cuLibraryGetManaged(CUdeviceptr* pointer, size_t* size_bytes, CUlibrary handle,
                             const char* name) {
  std::shared_ptr<LoadedLibrary> library;
  CUDA_RETURN_IF_ERROR(Require(handle, library));
  if (name == nullptr || *name == 0 || (pointer == nullptr && size_bytes == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  Context* context = FindDevice(0)->primary;
  if (CurrentContext() != nullptr) CUDA_RETURN_IF_ERROR(RequireContext(context));
  std::shared_ptr<LoadedModule> module;
  CUDA_RETURN_IF_ERROR(library->ModuleIn(*context, module));
  const Global* global = module->code->FindGlobal(name);
  if (global == nullptr || !global->managed) return CUDA_ERROR_NOT_FOUND;
  if (pointer != nullptr) *pointer = global->address;
  if (size_bytes != nullptr) *size_bytes = global->size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel handle) {
  // Unlike the rest of cuKernel*, a function belongs to the current context.
  Context* context = nullptr;
  CUDA_RETURN_IF_ERROR(RequireContext(context));
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  FoundFunction found;
  const CUresult result = FindFunction(*context, handle, found);
  if (result == CUDA_SUCCESS) *function = reinterpret_cast<CUfunction>(found.function.get());
  return result;
}

CUresult cuKernelGetLibrary(CUlibrary* library, CUkernel handle) {
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (library == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *library = reinterpret_cast<CUlibrary>(kernel->library);
  return CUDA_SUCCESS;
}

CUresult cuKernelGetName(const char** name, CUkernel handle) {
  if (handle == nullptr && Healthy() == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = kernel->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuKernelGetParamInfo(CUkernel handle, size_t index, size_t* offset_bytes,
                              size_t* size_bytes) {
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (offset_bytes == nullptr || index >= kernel->kernel->params.size())
    return CUDA_ERROR_INVALID_VALUE;
  *offset_bytes = kernel->kernel->params[index].offset_bytes;
  if (size_bytes != nullptr) *size_bytes = kernel->kernel->params[index].size_bytes;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel handle,
                              CUdevice ordinal) {
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The device only has to exist: all of them play the same.
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return GetAttribute(*kernel->kernel, *kernel->settings, attribute, *value);
}

CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel handle,
                              CUdevice ordinal) {
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return SetAttribute(*kernel->kernel, *kernel->settings, attribute, value);
}

CUresult cuKernelSetCacheConfig(CUkernel handle, CUfunc_cache config, CUdevice ordinal) {
  std::shared_ptr<LibraryKernel> kernel;
  CUDA_RETURN_IF_ERROR(Require(handle, kernel));
  if (FindDevice(ordinal) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  return ValidCacheConfig(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // extern "C"
