// SPDX-License-Identifier: Apache-2.0
// Thread-block clusters: distributed shared memory, sizes fixed in the code and asked for at the
// launch, and launches that may begin early.
#include <cooperative_groups.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

// A histogram whose bins lie in the shared memory of all blocks of a cluster.
__global__ void Histogram(const unsigned* values, int n, unsigned* bins, int bins_of_block) {
  extern __shared__ unsigned local[];
  cg::cluster_group cluster = cg::this_cluster();
  for (int i = threadIdx.x; i < bins_of_block; i += blockDim.x) local[i] = 0;
  cluster.sync();
  const int total = bins_of_block * static_cast<int>(cluster.num_blocks());
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const unsigned bin = values[i] % static_cast<unsigned>(total);
    unsigned* const theirs = cluster.map_shared_rank(local, bin / bins_of_block);
    atomicAdd(theirs + bin % bins_of_block, 1u);
  }
  cluster.sync();
  unsigned* const mine = bins + cluster.block_rank() * bins_of_block;
  for (int i = threadIdx.x; i < bins_of_block; i += blockDim.x) atomicAdd(mine + i, local[i]);
}

__global__ void __cluster_dims__(2, 1, 1) Pairs(unsigned* ranks) {
  ranks[blockIdx.x] = cg::this_cluster().block_rank();
}

__global__ void AddOne(unsigned* value) {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  *value += 1;
}

int main() {
  Program program("clusters");
  constexpr int kCount = 20000;
  std::vector<unsigned> values(kCount);
  for (int i = 0; i < kCount; ++i) values[i] = static_cast<unsigned>(i) * 2654435761u >> 7;
  unsigned *device_values = nullptr, *bins = nullptr;
  constexpr int kBinsOfBlock = 64;
  program.Ok(cudaMalloc(&device_values, kCount * sizeof(unsigned)));
  program.Ok(cudaMalloc(&bins, 8 * kBinsOfBlock * sizeof(unsigned)));
  program.Ok(
      cudaMemcpy(device_values, values.data(), kCount * sizeof(unsigned), cudaMemcpyHostToDevice));
  for (const unsigned size : {1u, 2u, 4u, 8u}) {
    program.Ok(cudaMemset(bins, 0, 8 * kBinsOfBlock * sizeof(unsigned)));
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {size, 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(16);
    config.blockDim = dim3(128);
    config.dynamicSmemBytes = kBinsOfBlock * sizeof(unsigned);
    config.attrs = &attribute;
    config.numAttrs = 1;
    int active = 0;
    program.Ok(cudaOccupancyMaxActiveClusters(&active, Histogram, &config));
    program.Expect(active > 0, "a cluster fits");
    program.Ok(cudaLaunchKernelEx(&config, Histogram, static_cast<const unsigned*>(device_values),
                                  kCount, bins, kBinsOfBlock));
    const unsigned total = size * kBinsOfBlock;
    std::vector<unsigned> seen(total), expected(total);
    program.Ok(cudaMemcpy(seen.data(), bins, total * sizeof(unsigned), cudaMemcpyDeviceToHost));
    for (const unsigned value : values) ++expected[value % total];
    program.Expect(seen == expected, "the bins of a cluster");
  }

  program.Ok(cudaMemset(bins, 0xff, 4 * sizeof(unsigned)));
  Pairs<<<4, 1>>>(bins);
  unsigned ranks[4] = {};
  program.Ok(cudaMemcpy(ranks, bins, sizeof(ranks), cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < 4; ++i) program.Expect(ranks[i] == i % 2, "ranks in a cluster of two");

  // Sixteen blocks are more than every device has to offer: to be allowed, and within a grid.
  program.Ok(cudaFuncSetAttribute(Histogram, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {3, 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(4);
  config.blockDim = dim3(32);
  config.attrs = &attribute;
  config.numAttrs = 1;
  const cudaError_t wrong = cudaLaunchKernelEx(
      &config, Histogram, static_cast<const unsigned*>(device_values), kCount, bins, 1);
  cudaGetLastError();
  program.Expect(wrong != cudaSuccess, "a cluster that does not divide its grid");

  // Kernels that may begin before the one before has ended, and wait for it themselves.
  program.Ok(cudaMemset(bins, 0, sizeof(unsigned)));
  cudaStream_t stream = nullptr;
  program.Ok(cudaStreamCreate(&stream));
  attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  for (int i = 0; i < 100; ++i) program.Ok(cudaLaunchKernelEx(&config, AddOne, bins));
  program.Ok(cudaStreamSynchronize(stream));
  unsigned sum = 0;
  program.Ok(cudaMemcpy(&sum, bins, sizeof(sum), cudaMemcpyDeviceToHost));
  program.Expect(sum == 100, "a hundred early kernels");
  return program.Finish("values=%d", kCount);
}
