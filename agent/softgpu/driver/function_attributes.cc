// SPDX-License-Identifier: Apache-2.0
// Attributes of functions and kernels: what the code needs, and the few that a program may change.
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/played.h"

namespace gpuloom::softgpu {
namespace {

// `.reqnctapercluster` in the PTX: then the cluster's size is fixed, and may not be set.
bool NeedsCluster(const Kernel& kernel) { return kernel.required_cluster[0] != 0; }

int ClusterSize(const Kernel& kernel, const FunctionSettings& settings, int axis) {
  return NeedsCluster(kernel) ? static_cast<int>(kernel.required_cluster[axis])
                              : settings.cluster_size[axis].load();
}

}  // namespace

CUresult GetAttribute(const Kernel& kernel, const FunctionSettings& settings,
                      CUfunction_attribute attribute, int& value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      value = static_cast<int>(kernel.max_threads_per_block);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES:
      value = static_cast<int>(kernel.static_shared_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CONST_SIZE_BYTES:
      value = static_cast<int>(kernel.const_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES:
      value = static_cast<int>(kernel.local_bytes);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NUM_REGS:
      value = static_cast<int>(kernel.num_regs);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PTX_VERSION:
      value = settings.ptx_version;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_BINARY_VERSION:
      value = static_cast<int>(ThePlayedCapability().number);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CACHE_MODE_CA:
      // Whether the code was compiled to cache global loads in L1: there is no cache.
      value = 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      value = settings.dynamic_shared_bytes;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      value = settings.shared_carveout;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET:
      value = NeedsCluster(kernel) ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
      value = ClusterSize(kernel, settings, 0);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
      value = ClusterSize(kernel, settings, 1);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      value = ClusterSize(kernel, settings, 2);
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      value = settings.non_portable_cluster;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      value = settings.cluster_policy;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

CUresult SetAttribute(const Kernel& kernel, FunctionSettings& settings,
                      CUfunction_attribute attribute, int value) {
  switch (attribute) {
    case CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES:
      // Static and dynamic shared memory share what one block can have.
      if (value < 0 || static_cast<uint64_t>(value) + kernel.static_shared_bytes >
                           static_cast<uint64_t>(ThePlayedCapability().block_shared_bytes())) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      settings.dynamic_shared_bytes = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT:
      // A percentage, or -1 for the driver's choice: as CUDA judges it. Nothing depends on it here.
      if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
      settings.shared_carveout = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT:
    case CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH:
      // 0 takes the size back: then a launch has no clusters unless it asks for them.
      if (value < 0 || NeedsCluster(kernel)) return CUDA_ERROR_INVALID_VALUE;
      settings.cluster_size[attribute - CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH] = value;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED:
      settings.non_portable_cluster = value != 0 ? 1 : 0;
      return CUDA_SUCCESS;
    case CU_FUNC_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE:
      if (value < 0 || value > CU_CLUSTER_SCHEDULING_POLICY_LOAD_BALANCING) {
        return CUDA_ERROR_INVALID_VALUE;
      }
      settings.cluster_policy = value;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

}  // namespace gpuloom::softgpu
