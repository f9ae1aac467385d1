// SPDX-License-Identifier: Apache-2.0
// `__managed__` arrays that are large enough to migrate, and a counter beside them: the program, kernels and a system
// call take turns.
#include <unistd.h>

#include "check.h"

constexpr int kCount = 1 << 21;
constexpr int kStep = 64;

__managed__ int counter = 5;
__managed__ float large[kCount];
__managed__ float begins_with[4] = {1.0f, 2.0f, 3.0f, 4.0f};

__global__ void Add(float by) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  large[i * kStep] += by + begins_with[i % 4];
  if (threadIdx.x == 0) atomicAdd(&counter, 1);
}

int main() {
  Program program("managed_arrays");
  program.Expect(counter == 5 && begins_with[3] == 4.0f, "an initial value is missing");
  for (int i = 0; i < kCount; ++i) program.Expect(large[i] == 0.0f, "an element is not zero");
  constexpr int kBlocks = kCount / kStep / 256;
  for (int turn = 1; turn <= 3; ++turn) {
    for (int i = 0; i < kCount; ++i) large[i] = static_cast<float>(turn);
    Add<<<kBlocks, 256>>>(10.0f);
    Add<<<kBlocks, 256>>>(20.0f);
    program.Ok(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; ++i) {
      const float added = i % kStep == 0 ? 30.0f + 2 * begins_with[i / kStep % 4] : 0.0f;
      program.Expect(large[i] == static_cast<float>(turn) + added, "wrong element");
    }
  }
  program.Expect(counter == 5 + 6 * kBlocks, "host and device see different counters");
  program.Fails(cudaFree(large), cudaErrorInvalidValue);
  int ends[2];
  program.Expect(pipe(ends) == 0, "no pipe");
  const float sent[4] = {7.0f, 8.0f, 9.0f, 10.0f};
  Add<<<kBlocks, 256>>>(1.0f);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(write(ends[1], sent, sizeof(sent)) == sizeof(sent), "write");
  program.Expect(read(ends[0], large, sizeof(sent)) == sizeof(sent), "read into the array");
  program.Expect(large[0] == 7.0f && large[3] == 10.0f, "what was read is not there");
  return program.Finish("counter=%d", counter);
}
