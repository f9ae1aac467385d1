// SPDX-License-Identifier: Apache-2.0
// How many multiprocessors a program sees, and that it is as many everywhere: the attribute, the properties, what occupancy
// suggests, and the largest cooperative grid. Usage: multiprocessors [how many are expected]
#include <cooperative_groups.h>

#include "check.h"

__global__ void Together(unsigned* arrived) {
  if (threadIdx.x == 0) atomicAdd(arrived, 1);
  cooperative_groups::this_grid().sync();
  if (threadIdx.x == 0 && *static_cast<volatile unsigned*>(arrived) != gridDim.x) __trap();
}

int main(int argc, char** argv) {
  Program program("multiprocessors");
  int count = 0;
  program.Ok(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  const int expected = static_cast<int>(NumberArgument(argc, argv, count));
  program.Expect(count == expected, "the attribute");
  cudaDeviceProp properties;
  program.Ok(cudaGetDeviceProperties(&properties, 0));
  program.Expect(properties.multiProcessorCount == expected, "the properties");

  int grid = 0, block = 0, resident = 0;
  program.Ok(cudaOccupancyMaxPotentialBlockSize(&grid, &block, Together));
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, Together, block, 0));
  program.Expect(resident > 0 && grid == resident * expected, "what occupancy suggests");

  constexpr int kThreads = 64;
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, Together, kThreads, 0));
  unsigned* arrived = nullptr;
  program.Ok(cudaMalloc(&arrived, sizeof(unsigned)));
  program.Ok(cudaMemset(arrived, 0, sizeof(unsigned)));
  void* arguments[] = {&arrived};
  const auto launch = [&](int blocks) {
    return cudaLaunchCooperativeKernel(Together, dim3(blocks), dim3(kThreads), arguments, 0,
                                       nullptr);
  };
  program.Ok(launch(resident * expected));
  program.Ok(cudaDeviceSynchronize());
  program.Expect(launch(resident * expected + 1) == cudaErrorCooperativeLaunchTooLarge,
                 "one block more is too many");
  (void)cudaGetLastError();
  return program.Finish("%d multiprocessors, %d blocks of %d threads on each", count, resident,
                        kThreads);
}
