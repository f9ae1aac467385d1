// SPDX-License-Identifier: Apache-2.0
// How many blocks and clusters of a kernel fit: asked of the executor's driver once, and
// remembered.
#include <string.h>

#include "proto/cuda/return_if_error.h"
#include "shim/context/context.h"
#include "shim/launch/launch_attributes.h"
#include "shim/module/kernel.h"
#include "shim/process/futex.h"
#include "shim/session/session.h"

namespace gpuloom {

constinit Lock occupancy_lock;

namespace {

// CUDA promises this size on every device that has clusters.
constexpr int kLargestPortableCluster = 8;

CUresult MaxActiveBlocks(int* blocks, const void* handle, int block_threads, size_t shared_bytes,
                         unsigned flags) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  if (blocks == nullptr || block_threads <= 0 ||
      (flags & ~unsigned{CU_OCCUPANCY_DISABLE_CACHING_OVERRIDE}) != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return BlocksPerMultiprocessor(kernel, block_threads, shared_bytes, flags, blocks);
}

// The block size, a multiple of the warp size, with the most resident threads; the largest one if
// there are several.
CUresult MaxPotentialBlockSize(int* min_grid, int* best_block, const void* handle,
                               CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                               int block_limit, unsigned flags) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, &kernel));
  if (min_grid == nullptr || best_block == nullptr || block_limit < 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int32_t* device = session.device().attributes;
  const int warp = device[CU_DEVICE_ATTRIBUTE_WARP_SIZE];
  const int resident_limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR];
  int limit = device[CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK];
  const int kernel_limit = kernel->attribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  if (kernel_limit < limit) limit = kernel_limit;
  if (block_limit != 0 && block_limit < limit) limit = block_limit;
  if (warp <= 0 || limit <= 0) return CUDA_ERROR_INVALID_VALUE;
  int most_resident = 0;
  int best_blocks = 0;
  *best_block = 0;
  // From the largest size down, as only more resident threads win over a larger block.
  for (int threads = (limit + warp - 1) / warp * warp; threads > 0; threads -= warp) {
    const int block = threads < limit ? threads : limit;
    // The program's function is called without any lock of ours.
    const size_t shared = shared_of_block != nullptr ? shared_of_block(block) : shared_bytes;
    int blocks = 0;
    CUDA_RETURN_IF_ERROR(BlocksPerMultiprocessor(kernel, block, shared, flags, &blocks));
    if (blocks * block > most_resident) {
      most_resident = blocks * block;
      best_blocks = blocks;
      *best_block = block;
    }
    // No size can have more.
    if (most_resident >= resident_limit) break;
  }
  *min_grid = best_blocks * device[CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT];
  return CUDA_SUCCESS;
}

CUresult AskForClusters(Kernel* kernel, wire::ClusterQuestion question, const LaunchShape& shape,
                        const wire::LaunchAttributes& attributes, int* value) {
  wire::OccupancyClusters::Reply reply;
  const CUresult result =
      session.Call<wire::OccupancyClusters>({IdOf(kernel),
                                             question,
                                             {shape.grid_x, shape.grid_y, shape.grid_z},
                                             {shape.block_x, shape.block_y, shape.block_z},
                                             shape.dynamic_shared_bytes,
                                             attributes},
                                            &reply);
  if (result == CUDA_SUCCESS) *value = reply.value;
  return result;
}

// What both questions about clusters check and read.
CUresult ReadQuestion(const int* value, const void* handle, const CUlaunchConfig* config,
                      Kernel** kernel, LaunchShape* shape, LaunchAsks* asks) {
  CUDA_RETURN_IF_ERROR(FindUsableKernel(handle, kernel));
  if (value == nullptr || config == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *shape = {config->gridDimX,  config->gridDimY,  config->gridDimZ,      config->blockDimX,
            config->blockDimY, config->blockDimZ, config->sharedMemBytes};
  CUDA_RETURN_IF_ERROR(ReadLaunchAttributes(config->attrs, config->numAttrs, asks));
  AddKernelCluster(**kernel, &asks->attributes);
  return CUDA_SUCCESS;
}

}  // namespace

CUresult BlocksPerMultiprocessor(Kernel* kernel, int block_threads, size_t shared_bytes,
                                 unsigned flags, int* blocks) {
  {
    Holding holding(&occupancy_lock);
    // An empty entry has 0 threads, for which nobody asks.
    for (const OccupancyAnswer& answer : kernel->occupancy) {
      if (answer.block_threads == block_threads && answer.dynamic_shared_bytes == shared_bytes &&
          answer.flags == flags) {
        *blocks = answer.blocks_per_sm;
        return CUDA_SUCCESS;
      }
    }
  }
  // Asked without the lock: two threads may ask for the same at once, which costs a message.
  wire::OccupancyBlocks::Reply reply;
  CUDA_RETURN_IF_ERROR(session.Call<wire::OccupancyBlocks>(
      {IdOf(kernel), block_threads, shared_bytes, flags, 0}, &reply));
  *blocks = reply.blocks_per_sm;
  Holding holding(&occupancy_lock);
  // The oldest answer makes room: a program launches a kernel in few shapes.
  kernel->occupancy[kernel->next_occupancy++ % 4] = {block_threads, flags, shared_bytes,
                                                     reply.blocks_per_sm};
  return CUDA_SUCCESS;
}

CUresult MaxActiveClusters(Kernel* kernel, const LaunchShape& shape,
                           const wire::LaunchAttributes& attributes, int* clusters) {
  {
    Holding holding(&occupancy_lock);
    for (const ClusterAnswer& answer : kernel->clusters) {
      if (answer.known && memcmp(&answer.shape, &shape, sizeof(shape)) == 0 &&
          memcmp(&answer.attributes, &attributes, sizeof(attributes)) == 0) {
        *clusters = answer.clusters;
        return CUDA_SUCCESS;
      }
    }
  }
  CUDA_RETURN_IF_ERROR(AskForClusters(kernel, wire::ClusterQuestion::kMaxActiveClusters, shape,
                                      attributes, clusters));
  Holding holding(&occupancy_lock);
  kernel->clusters[kernel->next_clusters++ % 2] = {true, shape, attributes, *clusters};
  return CUDA_SUCCESS;
}

void AddKernelCluster(const Kernel& kernel, wire::LaunchAttributes* attributes) {
  constexpr uint32_t kBit = 1u << CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  if ((attributes->set & kBit) != 0) return;
  const int32_t size[3] = {kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH),
                           kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT),
                           kernel.attribute(CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH)};
  // The kernel wants no cluster.
  if (size[0] <= 0 && size[1] <= 0 && size[2] <= 0) return;
  for (int i = 0; i < 3; ++i) {
    attributes->cluster[i] = size[i] > 0 ? static_cast<uint32_t>(size[i]) : 0;
  }
  attributes->set |= kBit;
}

// Called when an attribute changes on which the answers depend, and when the library is reset.
void ForgetOccupancy(Kernel* kernel) {
  Holding holding(&occupancy_lock);
  for (OccupancyAnswer& answer : kernel->occupancy) answer.block_threads = 0;
  for (ClusterAnswer& answer : kernel->clusters) answer.known = false;
}

}  // namespace gpuloom

using namespace gpuloom;  // CUDA's functions are written in our terms

extern "C" {

CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function,
                                                     int block_threads, size_t shared_bytes) {
  return MaxActiveBlocks(blocks, function, block_threads, shared_bytes, 0);
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function,
                                                              int block_threads,
                                                              size_t shared_bytes, unsigned flags) {
  return MaxActiveBlocks(blocks, function, block_threads, shared_bytes, flags);
}
CUresult cuOccupancyMaxPotentialBlockSize(int* min_grid, int* block, CUfunction function,
                                          CUoccupancyB2DSize shared_of_block, size_t shared_bytes,
                                          int block_limit) {
  return MaxPotentialBlockSize(min_grid, block, function, shared_of_block, shared_bytes,
                               block_limit, 0);
}
CUresult cuOccupancyMaxPotentialBlockSizeWithFlags(int* min_grid, int* block, CUfunction function,
                                                   CUoccupancyB2DSize shared_of_block,
                                                   size_t shared_bytes, int block_limit,
                                                   unsigned flags) {
  return MaxPotentialBlockSize(min_grid, block, function, shared_of_block, shared_bytes,
                               block_limit, flags);
}

CUresult cuOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, CUfunction function, int blocks,
                                                 int block_threads) {
  Kernel* kernel;
  CUDA_RETURN_IF_ERROR(FindUsableKernel(function, &kernel));
  if (bytes == nullptr || blocks <= 0 || block_threads <= 0) return CUDA_ERROR_INVALID_VALUE;
  // Not cached: programs ask for it once, if at all.
  wire::OccupancySharedMemory::Reply reply;
  const CUresult result =
      session.Call<wire::OccupancySharedMemory>({IdOf(kernel), blocks, block_threads}, &reply);
  if (result == CUDA_SUCCESS) *bytes = reply.dynamic_shared_bytes;
  return result;
}

CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction function,
                                      const CUlaunchConfig* config) {
  Kernel* kernel;
  LaunchShape shape;
  LaunchAsks asks;
  const CUresult result = ReadQuestion(clusters, function, config, &kernel, &shape, &asks);
  return result != CUDA_SUCCESS ? result
                                : MaxActiveClusters(kernel, shape, asks.attributes, clusters);
}

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction function,
                                            const CUlaunchConfig* config) {
  Kernel* kernel;
  LaunchShape shape;
  LaunchAsks asks;
  CUDA_RETURN_IF_ERROR(ReadQuestion(size, function, config, &kernel, &shape, &asks));
  int found = 0;
  CUDA_RETURN_IF_ERROR(AskForClusters(kernel, wire::ClusterQuestion::kMaxPotentialSize, shape,
                                      asks.attributes, &found));
  // Another session may have allowed more for a kernel that both use.
  const bool large = kernel->attribute(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED) > 0;
  *size = large || found < kLargestPortableCluster ? found : kLargestPortableCluster;
  return CUDA_SUCCESS;
}

}  // extern "C"
