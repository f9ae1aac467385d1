// SPDX-License-Identifier: Apache-2.0
// What the runtime says about kernels and how many blocks fit: attributes, occupancy, limits. The
// closing line holds the numbers, which are the driver's own.
#include "check.h"

__global__ void Plain(int* out) { out[threadIdx.x] = threadIdx.x; }

__global__ void __launch_bounds__(256, 2) WithShared(float* out) {
  __shared__ float part[1024];
  part[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = part[255 - threadIdx.x];
}

__global__ void Dynamic(int* out) {
  extern __shared__ int words[];
  words[threadIdx.x] = threadIdx.x;
  __syncthreads();
  out[threadIdx.x] = words[blockDim.x - 1 - threadIdx.x];
}

int main() {
  Program program("occupancy");
  cudaFuncAttributes attributes;
  program.Ok(cudaFuncGetAttributes(&attributes, WithShared));
  program.Expect(attributes.sharedSizeBytes == 4096, "another static shared memory");
  program.Expect(attributes.maxThreadsPerBlock == 256, "the launch bounds are missing");
  int plain = 0, shared = 0, large = 0;
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&plain, Plain, 128, 0));
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&shared, WithShared, 256, 0));
  program.Ok(cudaFuncSetAttribute(Dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 << 10));
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&large, Dynamic, 128, 96 << 10));
  program.Expect(plain > 0 && shared > 0 && large > 0 && large <= plain, "occupancy is wrong");
  int grid = 0, block = 0;
  program.Ok(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Plain));
  program.Expect(block > 0 && block % 32 == 0, "an odd block size");
  size_t available = 0;
  program.Ok(cudaOccupancyAvailableDynamicSMemPerBlock(&available, Dynamic, 2, 128));
  program.Expect(available > 0, "no shared memory for two blocks");

  // What it promises can be launched.
  int* out = nullptr;
  program.Ok(cudaMalloc(&out, 1024 * sizeof(int)));
  Plain<<<grid, block>>>(out);
  Dynamic<<<large, 128, 96 << 10>>>(out);
  program.Ok(cudaDeviceSynchronize());
  int host[128];
  program.Ok(cudaMemcpy(host, out, sizeof(host), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 128; ++i) program.Expect(host[i] == 127 - i, "wrong element");
  cudaDeviceProp device;
  program.Ok(cudaGetDeviceProperties(&device, 0));
  return program.Finish("plain=%d shared=%d large=%d grid=%d block=%d available=%zu sms=%d", plain,
                        shared, large, grid, block, available, device.multiProcessorCount);
}
