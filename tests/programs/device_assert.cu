// SPDX-License-Identifier: Apache-2.0
// assert in a kernel: the context is lost with cudaErrorAssert, as CUDA says, and the message names
// file, function and condition on standard error.
#include <cassert>

#include "check.h"

__global__ void Claim(int value) { assert(value == 1); }

int main() {
  Program program("device_assert");
  Claim<<<1, 1>>>(1);
  program.Ok(cudaDeviceSynchronize());
  Claim<<<1, 1>>>(2);
  program.Fails(cudaDeviceSynchronize(), cudaErrorAssert);
  void* memory = nullptr;
  program.Fails(cudaMalloc(&memory, 16), cudaErrorAssert);
  return program.Finish("error=cudaErrorAssert");
}
