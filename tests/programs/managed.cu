// Managed memory: `__managed__` variables and cudaMallocManaged, written and read by host and
// device in turn, also through pointers inside of it.
#include "check.h"

struct Node {
  Node* next;
  int value;
};

__managed__ int counter = 5;
__managed__ float table[256];
__managed__ Node* head = nullptr;

__global__ void Count(int by) { atomicAdd(&counter, by); }

__global__ void Fill(float* values, int n, float factor) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = i * factor;
}

__global__ void FillTable() { table[threadIdx.x] += threadIdx.x; }

__global__ void Walk(int* sum) {
  for (const Node* node = head; node != nullptr; node = node->next) *sum += node->value;
}

int main() {
  Program program("managed");
  program.Expect(counter == 5, "the initial value is missing");
  counter = 10;
  Count<<<2, 32>>>(1);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(counter == 74, "host and device see different variables");

  for (int i = 0; i < 256; ++i) table[i] = 1000.0f;
  FillTable<<<1, 256>>>();
  program.Ok(cudaDeviceSynchronize());
  for (int i = 0; i < 256; ++i) program.Expect(table[i] == 1000.0f + i, "wrong table element");

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
  head = &nodes[0];
  Walk<<<1, 1>>>(sum);
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
  return program.Finish("counter=%d sum=%d", counter, result);
}
