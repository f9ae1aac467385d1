// SPDX-License-Identifier: Apache-2.0
// Allocates until it is refused, expects cudaErrorMemoryAllocation, and goes on. Usage: oom
// [steps], each 1/steps of the memory that the device reports.
#include <vector>

#include "check.h"

__global__ void Fill(int* values, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = value;
}

int main(int argc, char** argv) {
  Program program("oom");
  const int steps = static_cast<int>(NumberArgument(argc, argv, 16));
  size_t free_bytes, total_bytes;
  program.Ok(cudaMemGetInfo(&free_bytes, &total_bytes));
  void* too_much = nullptr;
  program.Fails(cudaMalloc(&too_much, total_bytes + (64u << 20)), cudaErrorMemoryAllocation);

  const size_t piece_bytes = total_bytes / steps;
  std::vector<void*> pieces;
  cudaError_t result = cudaSuccess;
  while (result == cudaSuccess && pieces.size() <= static_cast<size_t>(steps)) {
    void* piece = nullptr;
    result = cudaMalloc(&piece, piece_bytes);
    if (result == cudaSuccess) pieces.push_back(piece);
  }
  program.Fails(result, cudaErrorMemoryAllocation);
  const size_t taken_mib = pieces.size() * piece_bytes >> 20;
  for (void* piece : pieces) program.Ok(cudaFree(piece));

  // A refusal breaks nothing: memory is there again and kernels run.
  constexpr int kCount = 1000;
  int* values;
  program.Ok(cudaMalloc(&values, piece_bytes > kCount * sizeof(int) ? piece_bytes : 4096));
  Fill<<<(kCount + 127) / 128, 128>>>(values, kCount, 42);
  std::vector<int> host(kCount);
  program.Ok(cudaMemcpy(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int value : host) program.Expect(value == 42, "wrong value after the refusal");
  program.Ok(cudaFree(values));
  return program.Finish("total_mib=%zu taken_mib=%zu then=refused", total_bytes >> 20, taken_mib);
}
