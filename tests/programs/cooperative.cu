// SPDX-License-Identifier: Apache-2.0
// A cooperative grid: all blocks are there at once and wait for each other, many times. Usage:
// cooperative [rounds]
#include <cooperative_groups.h>

#include <vector>

#include "check.h"

namespace cg = cooperative_groups;

// Each round every block adds up what all blocks wrote in the round before.
__global__ void Rounds(unsigned* now, unsigned* next, int rounds) {
  cg::grid_group grid = cg::this_grid();
  for (int round = 0; round < rounds; ++round) {
    unsigned sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) sum += now[i];
    for (int distance = 16; distance > 0; distance /= 2) {
      sum += __shfl_down_sync(0xffffffffu, sum, distance);
    }
    if (threadIdx.x == 0) next[blockIdx.x] = sum % 1000003u + blockIdx.x;
    grid.sync();
    unsigned* const other = now;
    now = next;
    next = other;
  }
}

int main(int argc, char** argv) {
  Program program("cooperative");
  const int rounds = static_cast<int>(NumberArgument(argc, argv, 20));
  int offered = 0, processors = 0, resident = 0;
  program.Ok(cudaDeviceGetAttribute(&offered, cudaDevAttrCooperativeLaunch, 0));
  program.Expect(offered == 1, "cooperative launches are offered");
  program.Ok(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
  program.Ok(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, Rounds, 32, 0));
  program.Expect(resident > 0, "a block fits");

  const unsigned blocks = static_cast<unsigned>(processors);
  std::vector<unsigned> expected(blocks), other(blocks);
  for (unsigned i = 0; i < blocks; ++i) expected[i] = i + 1;
  unsigned *now = nullptr, *next = nullptr;
  program.Ok(cudaMalloc(&now, blocks * sizeof(unsigned)));
  program.Ok(cudaMalloc(&next, blocks * sizeof(unsigned)));
  program.Ok(cudaMemcpy(now, expected.data(), blocks * sizeof(unsigned), cudaMemcpyHostToDevice));
  for (int round = 0; round < rounds; ++round) {
    unsigned sum = 0;
    for (const unsigned value : expected) sum += value;
    for (unsigned i = 0; i < blocks; ++i) other[i] = sum % 1000003u + i;
    expected.swap(other);
  }
  int count = rounds;
  void* arguments[] = {&now, &next, &count};
  program.Ok(cudaLaunchCooperativeKernel(Rounds, dim3(blocks), dim3(32), arguments, 0, nullptr));
  std::vector<unsigned> seen(blocks);
  program.Ok(cudaMemcpy(seen.data(), rounds % 2 == 0 ? now : next, blocks * sizeof(unsigned),
                        cudaMemcpyDeviceToHost));
  for (unsigned i = 0; i < blocks; ++i) program.Expect(seen[i] == expected[i], "a block's sum");

  // A grid that cannot be there at once.
  program.Fails(
      cudaLaunchCooperativeKernel(Rounds, dim3(static_cast<unsigned>(resident) * blocks + 1),
                                  dim3(32), arguments, 0, nullptr),
      cudaErrorCooperativeLaunchTooLarge);
  program.Ok(cudaDeviceSynchronize());
  return program.Finish("blocks=%u rounds=%d", blocks, rounds);
}
