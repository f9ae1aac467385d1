// SPDX-License-Identifier: Apache-2.0
// A kernel writes where nothing is mapped: the error is cudaErrorIllegalAddress and stays.
#include "check.h"

__global__ void WriteTo(int* address) { *address = 1; }

int main() {
  Program program("fault");
  int* valid;
  program.Ok(cudaMalloc(&valid, sizeof(int)));
  WriteTo<<<1, 1>>>(valid);
  program.Ok(cudaDeviceSynchronize());

  WriteTo<<<1, 1>>>(reinterpret_cast<int*>(0x10));
  program.Fails(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  // Nothing works any more, and every answer names the first cause.
  int* more = nullptr;
  program.Fails(cudaMalloc(&more, sizeof(int)), cudaErrorIllegalAddress);
  program.Fails(cudaDeviceSynchronize(), cudaErrorIllegalAddress);
  WriteTo<<<1, 1>>>(valid);
  program.Fails(cudaGetLastError(), cudaErrorIllegalAddress);
  return program.Finish("error=cudaErrorIllegalAddress");
}
