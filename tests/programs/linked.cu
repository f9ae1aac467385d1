// SPDX-License-Identifier: Apache-2.0
// Device code from two sources, linked (-rdc=true): functions, variables and pointers to functions
// across them. The other source is linked_part.cu.
#include "check.h"
#include "linked_part.h"

__device__ int table[4] = {1, 2, 3, 4};
static __device__ int own = 10;  // the other source has its own

__global__ void Call(int* out) {
  const int i = threadIdx.x;
  out[i] = Twice(table[i]) + shared_word + own;
  out[4 + i] = chosen(i);
}

int main() {
  Program program("linked");
  int* out = nullptr;
  program.Ok(cudaMalloc(&out, 8 * sizeof(int)));
  const int word = 1000;
  program.Ok(cudaMemcpyToSymbol(shared_word, &word, sizeof(word)));
  Call<<<1, 4>>>(out);
  int seen[8] = {};
  program.Ok(cudaMemcpy(seen, out, sizeof(seen), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; ++i) {
    program.Expect(seen[i] == 2 * (i + 1) + 20 + 1000 + 10, "a call into the other source");
    program.Expect(seen[4 + i] == i * i, "a call through a pointer");
  }
  return program.Finish("calls=8");
}
