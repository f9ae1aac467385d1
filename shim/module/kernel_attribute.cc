// SPDX-License-Identifier: Apache-2.0
// cuFunc* and cuKernel*: attributes and preferences of kernels.
#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/module/kernel.h"
#include "shim/module/library.h"
#include "shim/session/session.h"

namespace gpuloom {
namespace {

CUresult GetAttribute(int* value, CUfunction_attribute attribute, const void* handle) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  if (value == nullptr || attribute < 0 ||
      static_cast<uint32_t>(attribute) >= wire::kFunctionAttributes) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t known = kernel->attribute(attribute);
  if (known == wire::kNoAttribute) return CUDA_ERROR_INVALID_VALUE;
  *value = known;
  return CUDA_SUCCESS;
}

// A kernel's cluster size is an attribute of its launches, and other sessions may share the
// executor's kernel. So it is kept here and sent with every launch.
CUresult SetClusterSize(Kernel* kernel, CUfunction_attribute attribute, int value) {
  if (kernel->cluster_is_fixed || value < 0) return CUDA_ERROR_INVALID_VALUE;
  kernel->attributes[attribute].store(value, std::memory_order_relaxed);
  return CUDA_SUCCESS;
}

CUresult SetAttribute(const void* handle, CUfunction_attribute attribute, int value) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  if (attribute >= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH &&
      attribute <= CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH) {
    return SetClusterSize(kernel, attribute, value);
  }
  const bool settable = attribute == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES ||
                        attribute == CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT ||
                        attribute == CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED ||
                        attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE;
  if (!settable) return CUDA_ERROR_INVALID_VALUE;
  if (attribute == CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE &&
      static_cast<unsigned>(value) > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  // Libraries set the same value before every launch.
  if (kernel->attribute(attribute) == value) return CUDA_SUCCESS;
  wire::KernelSetAttribute::Reply reply;
  CUDA_RETURN_IF_ERROR(
      session.Call<wire::KernelSetAttribute>({IdOf(kernel), attribute, value}, &reply));
  // Only this attribute: a shared kernel's others may be what other sessions have set.
  kernel->attributes[attribute].store(reply.attributes[attribute], std::memory_order_relaxed);
  ForgetOccupancy(kernel);
  return CUDA_SUCCESS;
}

// No current device follows these preferences: they are checked and ignored.
CUresult SetCacheConfig(const void* handle, CUfunc_cache config) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  return config < CU_FUNC_CACHE_PREFER_NONE || config > CU_FUNC_CACHE_PREFER_EQUAL
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

}  // namespace
}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  // A function of a module that was only listed: with lazy loading nothing is known of it until it
  // is loaded or used.
  const Kernel* kernel = FindKernel(function);
  if (kernel != nullptr && kernel->library->is_module && !session.settings().eager_modules &&
      kernel->alive.load(std::memory_order_acquire) == Kernel::kStale &&
      session.Check() == CUDA_SUCCESS) {
    return CUDA_ERROR_FUNCTION_NOT_LOADED;
  }
  return GetAttribute(value, attribute, function);
}
CUresult cuKernelGetAttribute(int* value, CUfunction_attribute attribute, CUkernel kernel,
                              CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return GetAttribute(value, attribute, kernel);
}
CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  return SetAttribute(function, attribute, value);
}
CUresult cuKernelSetAttribute(CUfunction_attribute attribute, int value, CUkernel kernel,
                              CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return SetAttribute(kernel, attribute, value);
}

CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  return SetCacheConfig(function, config);
}
CUresult cuKernelSetCacheConfig(CUkernel kernel, CUfunc_cache config, CUdevice device) {
  CUDA_RETURN_IF_ERROR(NeedDevice(device));
  return SetCacheConfig(kernel, config);
}
CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(function, &kernel));
  return config < CU_SHARED_MEM_CONFIG_DEFAULT_BANK_SIZE ||
                 config > CU_SHARED_MEM_CONFIG_EIGHT_BYTE_BANK_SIZE
             ? CUDA_ERROR_INVALID_VALUE
             : CUDA_SUCCESS;
}

}  // extern "C"
