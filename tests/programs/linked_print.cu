// SPDX-License-Identifier: Apache-2.0
// Linked device code (-rdc=true) that prints, in a program whose first call is a launch: the runtime has the driver
// load the code before it makes a context current.
#include "check.h"

__global__ void Say(int* unused) {
  if (unused == nullptr) printf("device thread %d\n", threadIdx.x);
}

int main() {
  Program program("linked_print");
  Say<<<1, 1>>>(nullptr);
  program.Ok(cudaGetLastError());
  program.Ok(cudaDeviceSynchronize());
  return program.Finish("threads=1");
}
