// SPDX-License-Identifier: Apache-2.0
// Dynamic parallelism: kernels that launch kernels.
#include <vector>

#include "check.h"

__global__ void Child(int* out, int base) { out[base + threadIdx.x] = base + threadIdx.x; }

__global__ void Parent(int* out, int depth) {
  if (depth == 0) {
    Child<<<1, 32>>>(out, 32 * (blockIdx.x * blockDim.x + threadIdx.x));
  } else if (threadIdx.x == 0) {
    Parent<<<gridDim.x, blockDim.x, 0, cudaStreamTailLaunch>>>(out, depth - 1);
  }
}

int main() {
  Program program("children");
  constexpr int kParents = 8;
  int* out = nullptr;
  program.Ok(cudaMalloc(&out, kParents * 32 * sizeof(int)));
  program.Ok(cudaMemset(out, 0xff, kParents * 32 * sizeof(int)));
  Parent<<<1, kParents>>>(out, 2);
  program.Ok(cudaGetLastError());
  std::vector<int> seen(kParents * 32);
  program.Ok(cudaMemcpy(seen.data(), out, seen.size() * sizeof(int), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < seen.size(); ++i) {
    program.Expect(seen[i] == static_cast<int>(i), "what a child wrote");
  }
  return program.Finish("parents=%d", kParents);
}
