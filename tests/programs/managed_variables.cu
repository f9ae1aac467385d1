// SPDX-License-Identifier: Apache-2.0
// `__managed__` variables: one address for host and device, with initial values, before and after
// the first kernel.
#include "check.h"

__managed__ int counter = 5;
__managed__ float table[256];

__global__ void Count(int by) { atomicAdd(&counter, by); }
__global__ void FillTable() { table[threadIdx.x] += threadIdx.x; }

int main() {
  Program program("managed_variables");
  program.Expect(counter == 5, "the initial value is missing");
  counter = 10;
  Count<<<2, 32>>>(1);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(counter == 74, "host and device see different variables");
  for (int i = 0; i < 256; ++i) table[i] = 1000.0f;
  FillTable<<<1, 256>>>();
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < 256; ++i) program.Expect(table[i] == 1000.0f + i, "wrong table element");
  return program.Finish("counter=%d", counter);
}
