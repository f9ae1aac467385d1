// SPDX-License-Identifier: Apache-2.0
// Starts the CUDA runtime. Exit status 0 when a device is found and an allocation answered, else the runtime's error.
#include <cuda_runtime.h>

#include <cstdio>

int main() {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  void* pointer = nullptr;
  if (error == cudaSuccess) error = cudaMalloc(&pointer, 100);
  std::printf("%s, %d device(s)\n", cudaGetErrorString(error), count);
  if (error != cudaSuccess) return static_cast<int>(error);
  return count == 1 && pointer != nullptr ? 0 : 1;
}
