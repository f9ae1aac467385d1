// SPDX-License-Identifier: Apache-2.0
// Managed memory (cudaMallocManaged), written and read by host and device in turn, also through
// pointers inside of it, copied, filled and freed.
#include "check.h"

struct Node {
  Node* next;
  int value;
};

__global__ void Fill(float* values, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = i * factor;
}

__global__ void Walk(const Node* head, int* sum) {
  for (const Node* node = head; node != nullptr; node = node->next) *sum += node->value;
}

int main() {
  Program program("managed");
  constexpr int kCount = 100'000;
  float* values = nullptr;
  program.Ok(cudaMallocManaged(&values, kCount * sizeof(float)));
  for (int round = 1; round <= 3; ++round) {
    Fill<<<(kCount + 255) / 256, 256>>>(values, kCount, static_cast<float>(round));
    program.Ok(cudaDeviceSynchronize());
    for (int i = 0; i < kCount; i += 997) {
      program.Expect(values[i] == static_cast<float>(i) * round, "wrong element");
    }
    for (int i = 0; i < kCount; ++i) values[i] = -1;
  }

  // A list that the host builds and the device walks.
  Node* nodes = nullptr;
  int* sum = nullptr;
  program.Ok(cudaMallocManaged(&nodes, 100 * sizeof(Node)));
  program.Ok(cudaMallocManaged(&sum, sizeof(int)));
  *sum = 0;
  for (int i = 0; i < 100; ++i) nodes[i] = {i + 1 < 100 ? &nodes[i + 1] : nullptr, i};
  Walk<<<1, 1>>>(nodes, sum);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(*sum == 4950, "the device walked another list");

  // Copies and fills like any other memory.
  int plain[16];
  program.Ok(cudaMemset(values, 0, 64));
  program.Ok(cudaMemcpy(plain, values, sizeof(plain), cudaMemcpyDefault));
  for (int word : plain) program.Expect(word == 0, "the fill is missing");
  cudaPointerAttributes attributes;
  program.Ok(cudaPointerGetAttributes(&attributes, values));
  program.Expect(attributes.type == cudaMemoryTypeManaged, "the memory is not managed");
  program.Expect(attributes.devicePointer == values, "another address on the device");
  const int result = *sum;
  program.Ok(cudaFree(values));
  program.Ok(cudaFree(nodes));
  program.Ok(cudaFree(sum));
  return program.Finish("sum=%d", result);
}
