// SPDX-License-Identifier: Apache-2.0
// Device code from two sources, linked (-rdc=true), all of it PTX: there is nothing that was linked when the
// program was built, so the driver links the parts when the program starts. The other source is
// linked_part.cu.
#include "check.h"
#include "linked_part.h"

__global__ void Call(int* out) {
  const int i = threadIdx.x;
  out[i] = Twice(i) + shared_word;
  out[4 + i] = chosen(i);
}

int main() {
  Program program("linked_text");
  int* out = nullptr;
  program.Ok(cudaMalloc(&out, 8 * sizeof(int)));
  const int word = 500;
  program.Ok(cudaMemcpyToSymbol(shared_word, &word, sizeof(word)));
  Call<<<1, 4>>>(out);
  program.Ok(cudaGetLastError());
  int seen[8] = {};
  program.Ok(cudaMemcpy(seen, out, sizeof(seen), cudaMemcpyDeviceToHost));
  for (int i = 0; i < 4; ++i) {
    program.Expect(seen[i] == 2 * i + 20 + 500, "a call into the other source");
    program.Expect(seen[4 + i] == i * i, "a call through a pointer");
  }
  return program.Finish("calls=8");
}
