// SPDX-License-Identifier: Apache-2.0
// Vector addition: the smallest complete program. Usage: vadd [elements]
#include <vector>

#include "check.h"

__global__ void Add(const float* a, const float* b, float* sum, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) sum[i] = a[i] + b[i];
}

int main(int argc, char** argv) {
  Program program("vadd");
  const int n = static_cast<int>(NumberArgument(argc, argv, 100'000));
  const size_t size_bytes = n * sizeof(float);
  std::vector<float> a(n), b(n), sum(n, -1.0f);
  for (int i = 0; i < n; ++i) {
    a[i] = 0.5f * i;
    b[i] = 3.0f - i;
  }

  float *device_a, *device_b, *device_sum;
  program.Ok(cudaMalloc(&device_a, size_bytes));
  program.Ok(cudaMalloc(&device_b, size_bytes));
  program.Ok(cudaMalloc(&device_sum, size_bytes));
  program.Ok(cudaMemcpy(device_a, a.data(), size_bytes, cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_b, b.data(), size_bytes, cudaMemcpyHostToDevice));
  Add<<<(n + 255) / 256, 256>>>(device_a, device_b, device_sum, n);
  program.Ok(cudaGetLastError());
  program.Ok(cudaMemcpy(sum.data(), device_sum, size_bytes, cudaMemcpyDeviceToHost));
  program.Ok(cudaFree(device_a));
  program.Ok(cudaFree(device_b));
  program.Ok(cudaFree(device_sum));

  for (int i = 0; i < n; ++i) program.Expect(sum[i] == a[i] + b[i], "wrong sum");
  cudaDeviceProp device;
  program.Ok(cudaGetDeviceProperties(&device, 0));
  return program.Finish("elements=%d device=\"%s\"", n, device.name);
}
