// SPDX-License-Identifier: Apache-2.0
// printf in kernels: comes out on this program's own standard output, complete, in order within a
// thread, at the latest when the host has synchronised; with every kind of argument.
#include "check.h"

__global__ void Say(int round) {
  if (threadIdx.x == 0) {
    printf("device round %d: %s %c %5.2f %lld %u %x %p%%\n", round, "text", 'c', 3.25 * round,
           -1234567890123LL, 4000000000u, 255, static_cast<void*>(nullptr));
  }
}

__global__ void Count() {
  for (int i = 0; i < 4; ++i) {
    __syncthreads();
    // One thread after the other, so that the order is always the same.
    for (int turn = 0; turn < blockDim.x; ++turn) {
      if (turn == threadIdx.x) printf("device thread %d step %d\n", threadIdx.x, i);
      __syncthreads();
    }
  }
}

int main() {
  Program program("device_printf");
  for (int round = 1; round <= 3; ++round) {
    Say<<<1, 32>>>(round);
    program.Ok(cudaGetLastError());
    program.Ok(cudaDeviceSynchronize());
    std::printf("host round %d\n", round);
    std::fflush(stdout);
  }
  Count<<<1, 3>>>();
  program.Ok(cudaDeviceSynchronize());
  return program.Finish("rounds=3 threads=3");
}
