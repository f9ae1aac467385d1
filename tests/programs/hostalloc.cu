// SPDX-License-Identifier: Apache-2.0
// Host memory that the device reaches: pinned, mapped, at the same address on both sides, and what
// CUDA says about pointers.
#include <vector>

#include "check.h"

struct Node {
  Node* next;
  int value;
};

__global__ void SumList(const Node* node, int* sum) {
  int total = 0;
  for (; node != nullptr; node = node->next) total += node->value;
  *sum = total;
}

__global__ void Double(int* values, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] *= 2;
}

int main() {
  Program program("hostalloc");
  // Pointers inside the data: only equal addresses make this work.
  constexpr int kNodes = 100;
  Node* nodes;
  int* sum;
  program.Ok(cudaHostAlloc(&nodes, kNodes * sizeof(Node), cudaHostAllocMapped));
  program.Ok(cudaMallocHost(&sum, sizeof(int)));
  void* device_view = nullptr;
  program.Ok(cudaHostGetDevicePointer(&device_view, nodes, 0));
  program.Expect(device_view == nodes, "host and device address differ");
  for (int i = 0; i < kNodes; ++i) {
    nodes[i] = {i + 1 < kNodes ? &nodes[i + 1] : nullptr, i};
  }
  *sum = -1;
  SumList<<<1, 1>>>(nodes, sum);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(*sum == kNodes * (kNodes - 1) / 2, "wrong sum over the list");

  // A megabyte that the kernel changes in place, beside asynchronous copies of it.
  constexpr int kCount = 1 << 14;
  int* values;
  int* copy;
  program.Ok(cudaHostAlloc(&values, kCount * sizeof(int), cudaHostAllocPortable));
  program.Ok(cudaMalloc(&copy, kCount * sizeof(int)));
  for (int i = 0; i < kCount; ++i) values[i] = i;
  Double<<<kCount / 128, 128>>>(values, kCount);
  program.Ok(cudaMemcpyAsync(copy, values, kCount * sizeof(int), cudaMemcpyHostToDevice, nullptr));
  Double<<<kCount / 128, 128>>>(copy, kCount);
  std::vector<int> result(kCount);
  program.Ok(cudaMemcpy(result.data(), copy, kCount * sizeof(int), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    program.Expect(values[i] == 2 * i && result[i] == 4 * i, "wrong element");
  }

  cudaPointerAttributes attributes;
  program.Ok(cudaPointerGetAttributes(&attributes, values + 5));
  program.Expect(attributes.type == cudaMemoryTypeHost,
                 "pinned memory is not known as host memory");
  program.Ok(cudaPointerGetAttributes(&attributes, copy));
  program.Expect(attributes.type == cudaMemoryTypeDevice, "device memory is not known");
  program.Ok(cudaPointerGetAttributes(&attributes, result.data()));
  program.Expect(attributes.type == cudaMemoryTypeUnregistered, "plain memory is known to CUDA");

  program.Ok(cudaFree(copy));
  program.Ok(cudaFreeHost(values));
  program.Ok(cudaFreeHost(sum));
  program.Ok(cudaFreeHost(nodes));
  program.Fails(cudaFreeHost(result.data()), cudaErrorInvalidValue);
  return program.Finish("nodes=%d elements=%d", kNodes, kCount);
}
