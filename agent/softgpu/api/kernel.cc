// SPDX-License-Identifier: Apache-2.0
// cuFunc* and cuOccupancy*: what a function needs and how it fits. A library's kernel is taken
// wherever a function is: its instance in the current context answers. Occupancy is that of the
// played compute capability, not of the processor, because programs size their grids by it.
#include <algorithm>
#include <atomic>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/launch.h"
#include "agent/softgpu/driver/library.h"
#include "agent/softgpu/driver/played.h"
#include "agent/softgpu/driver/state.h"
#include "proto/cuda/return_if_error.h"

using namespace gpuloom::softgpu;  // this file only defines CUDA's C functions

namespace {

// Everything here asks for a current context, since a kernel's handle has a function in each.
CUresult Require(CUfunction handle, FoundFunction& found) {
  Context* context = nullptr;
  const CUresult result = RequireContext(context);
  return result != CUDA_SUCCESS ? result : FindFunction(*context, handle, found);
}

// Both forms of the query. The flag that the second one has is about caching global loads in L1,
// and changes nothing without caches.
CUresult ActiveBlocks(int* blocks, CUfunction function, int block_threads,
                      size_t dynamic_shared_bytes) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (blocks == nullptr || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  *blocks = BlocksPerMultiprocessor(*found.function->kernel, static_cast<uint64_t>(block_threads),
                                    dynamic_shared_bytes);
  return CUDA_SUCCESS;
}

// The block size with the most threads resident; of equals the largest, because sizes are tried
// from the largest down. `shared_of` tells what a block of a size needs, where that depends on it.
// `limit` 0: none.
CUresult PotentialBlockSize(int* min_grid, int* block_threads, CUfunction function,
                            CUoccupancyB2DSize shared_of, size_t dynamic_shared_bytes, int limit) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (min_grid == nullptr || block_threads == nullptr || limit < 0) return CUDA_ERROR_INVALID_VALUE;
  const Kernel& kernel = *found.function->kernel;
  int most = static_cast<int>(kernel.max_threads_per_block);
  if (limit > 0) most = std::min(most, limit);
  int best_resident = 0;
  int best_threads = 0;
  for (int threads = most; threads > 0;) {
    // The program's function is called once for each size that is tried, as by cuda_occupancy.h.
    const size_t shared = shared_of != nullptr ? shared_of(threads) : dynamic_shared_bytes;
    const int resident =
        BlocksPerMultiprocessor(kernel, static_cast<uint64_t>(threads), shared) * threads;
    if (resident > best_resident) {
      best_resident = resident;
      best_threads = threads;
    }
    // Continues with the next lower multiple of a warp; the limit need not be one.
    threads = (threads - 1) / static_cast<int>(kWarpSize) * static_cast<int>(kWarpSize);
  }
  if (best_threads == 0) return CUDA_ERROR_INVALID_VALUE;
  *block_threads = best_threads;
  // As many blocks as fill the device once.
  *min_grid = best_resident / best_threads * Multiprocessors();
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction function) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return GetAttribute(*found.function->kernel, *found.function->settings, attribute, *value);
}

CUresult cuFuncSetAttribute(CUfunction function, CUfunction_attribute attribute, int value) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  return SetAttribute(*found.function->kernel, *found.function->settings, attribute, value);
}

// No hardware here has caches to divide: what is not nonsense is accepted and forgotten.
CUresult cuFuncSetCacheConfig(CUfunction function, CUfunc_cache config) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  return ValidCacheConfig(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuFuncSetSharedMemConfig(CUfunction function, CUsharedconfig config) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  return ValidSharedConfig(config) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

// Here and below: a null handle is a wrong value rather than a wrong handle, but a driver that has
// faulted or is not initialized says that first.
CUresult cuFuncGetModule(CUmodule* module, CUfunction function) {
  if (function == nullptr && Healthy() == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (module == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *module = reinterpret_cast<CUmodule>(found.module.get());
  return CUDA_SUCCESS;
}

CUresult cuFuncGetName(const char** name, CUfunction function) {
  if (function == nullptr && Healthy() == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (name == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *name = found.function->kernel->name.c_str();
  return CUDA_SUCCESS;
}

CUresult cuFuncGetParamInfo(CUfunction function, size_t index, size_t* offset_bytes,
                            size_t* size_bytes) {
  if (function == nullptr && Healthy() == CUDA_SUCCESS) return CUDA_ERROR_INVALID_VALUE;
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  const auto& params = found.function->kernel->params;
  if (offset_bytes == nullptr || index >= params.size()) return CUDA_ERROR_INVALID_VALUE;
  *offset_bytes = params[index].offset_bytes;
  if (size_bytes != nullptr) *size_bytes = params[index].size_bytes;
  return CUDA_SUCCESS;
}

// Functions are loaded with their modules, never later.
CUresult cuFuncIsLoaded(CUfunctionLoadingState* state, CUfunction function) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (state == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *state = CU_FUNCTION_LOADING_STATE_LOADED;
  return CUDA_SUCCESS;
}

CUresult cuFuncLoad(CUfunction function) {
  FoundFunction found;
  return Require(function, found);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int block_threads,
                                                     size_t dynamic_shared_bytes) {
  return ActiveBlocks(blocks, function, block_threads, dynamic_shared_bytes);
}

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t dynamic_shared_bytes,
                                                              unsigned flags) {
  if ((flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return ActiveBlocks(blocks, function, block_threads, dynamic_shared_bytes);
}

CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block_threads, CUfunction function,
                                          CUoccupancyB2DSize shared_of, size_t dynamic_shared_bytes,
                                          int limit) {
  return PotentialBlockSize(min_grid, block_threads, function, shared_of, dynamic_shared_bytes,
                            limit);
}

CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block_threads,
                                                   CUfunction function,
                                                   CUoccupancyB2DSize shared_of,
                                                   size_t dynamic_shared_bytes, int limit,
                                                   unsigned flags) {
  if ((flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0)
    return CUDA_ERROR_INVALID_VALUE;
  return PotentialBlockSize(min_grid, block_threads, function, shared_of, dynamic_shared_bytes,
                            limit);
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                      const CUlaunchConfig* config) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (clusters == nullptr || config == nullptr ||
      (config->numAttrs > 0 && config->attrs == nullptr)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Kernel& kernel = *found.function->kernel;
  const FunctionSettings& settings = *found.function->settings;
  uint64_t blocks_of_cluster = 1;
  // What the launch configuration names takes the place of a size that the code or the program has
  // set.
  if (kernel.required_cluster[0] != 0) {
    blocks_of_cluster = uint64_t{kernel.required_cluster[0]} * kernel.required_cluster[1] *
                        kernel.required_cluster[2];
  } else if (settings.cluster_size[0] > 0) {
    for (const std::atomic<int>& size : settings.cluster_size) {
      // Larger than any cluster; the product of three such does not wrap.
      blocks_of_cluster *= static_cast<uint64_t>(std::min(size.load(), 1 << 20));
    }
  }
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) continue;
    const auto& size = attribute.value.clusterDim;
    blocks_of_cluster = uint64_t{size.x} * size.y * size.z;
  }
  if (blocks_of_cluster != 1 && !ThePlayedCapability().has_clusters()) {
    return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  }
  const uint64_t largest = (settings.non_portable_cluster ? 2 : 1) * kMaxClusterBlocks;
  if (blocks_of_cluster == 0 || blocks_of_cluster > largest) return CUDA_ERROR_INVALID_CLUSTER_SIZE;
  // Whole clusters of those blocks that the device holds at once. Where on the device they run is
  // not modeled.
  const uint64_t threads = uint64_t{config->blockDimX} * config->blockDimY * config->blockDimZ;
  const int resident = BlocksPerMultiprocessor(kernel, threads, config->sharedMemBytes);
  *clusters =
      static_cast<int>(static_cast<uint64_t>(resident * Multiprocessors()) / blocks_of_cluster);
  return CUDA_SUCCESS;
}

CUresult cuOccupancyMaxPotentialClusterSize(int* blocks, CUfunction function,
                                            const CUlaunchConfig* config) {
  int one_block = 0;
  CUDA_RETURN_IF_ERROR(cuOccupancyMaxActiveClusters(&one_block, function, config));
  if (blocks == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // The largest that every program may ask for. The launch configuration is judged, but does not
  // make it smaller.
  *blocks = ThePlayedCapability().has_clusters() ? static_cast<int>(kMaxClusterBlocks) : 1;
  return CUDA_SUCCESS;
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* dynamic_shared_bytes, CUfunction function,
                                                 int blocks, int block_threads) {
  FoundFunction found;
  CUDA_RETURN_IF_ERROR(Require(function, found));
  if (dynamic_shared_bytes == nullptr || blocks <= 0 || block_threads <= 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Kernel& kernel = *found.function->kernel;
  // The request has to fit without any dynamic shared memory.
  if (BlocksPerMultiprocessor(kernel, static_cast<uint64_t>(block_threads), 0) < blocks) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const PlayedCapability& played = ThePlayedCapability();
  // Each resident block gets an equal part of the multiprocessor's shared memory, less what is
  // reserved for the block and what its code has; never more than a single block may have.
  const int64_t fair_share = played.shared_bytes() / blocks - played.reserved_shared_bytes -
                             int64_t{kernel.static_shared_bytes};
  const int64_t most = int64_t{played.block_shared_bytes()} - kernel.static_shared_bytes;
  *dynamic_shared_bytes = static_cast<size_t>(std::clamp<int64_t>(fair_share, 0, most));
  return CUDA_SUCCESS;
}

}  // extern "C"
