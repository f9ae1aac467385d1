// SPDX-License-Identifier: Apache-2.0
// Tiled matrix multiplication through shared memory. Usage: matmul [edge]
#include <cmath>
#include <vector>

#include "check.h"

constexpr int kTile = 16;

__global__ void Multiply(const float* a, const float* b, float* c, int n) {
  __shared__ float tile_a[kTile][kTile];
  __shared__ float tile_b[kTile][kTile];
  const int row = blockIdx.y * kTile + threadIdx.y;
  const int column = blockIdx.x * kTile + threadIdx.x;
  float sum = 0;
  for (int begin = 0; begin < n; begin += kTile) {
    const int k_a = begin + threadIdx.x;
    const int k_b = begin + threadIdx.y;
    tile_a[threadIdx.y][threadIdx.x] = row < n && k_a < n ? a[row * n + k_a] : 0;
    tile_b[threadIdx.y][threadIdx.x] = k_b < n && column < n ? b[k_b * n + column] : 0;
    __syncthreads();
    for (int k = 0; k < kTile; ++k) sum += tile_a[threadIdx.y][k] * tile_b[k][threadIdx.x];
    __syncthreads();
  }
  if (row < n && column < n) c[row * n + column] = sum;
}

int main(int argc, char** argv) {
  Program program("matmul");
  const int n = static_cast<int>(NumberArgument(argc, argv, 100));  // not a multiple of the tile
  const size_t size_bytes = sizeof(float) * n * n;
  std::vector<float> a(n * n), b(n * n), c(n * n);
  for (int i = 0; i < n * n; ++i) {
    a[i] = static_cast<float>(i % 13) - 6;
    b[i] = static_cast<float>(i % 7) / 4;
  }

  float *device_a, *device_b, *device_c;
  program.Ok(cudaMalloc(&device_a, size_bytes));
  program.Ok(cudaMalloc(&device_b, size_bytes));
  program.Ok(cudaMalloc(&device_c, size_bytes));
  program.Ok(cudaMemcpy(device_a, a.data(), size_bytes, cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_b, b.data(), size_bytes, cudaMemcpyHostToDevice));
  program.Ok(cudaMemset(device_c, 0xff, size_bytes));
  const int tiles = (n + kTile - 1) / kTile;
  Multiply<<<dim3(tiles, tiles), dim3(kTile, kTile)>>>(device_a, device_b, device_c, n);
  program.Ok(cudaGetLastError());
  program.Ok(cudaDeviceSynchronize());
  program.Ok(cudaMemcpy(c.data(), device_c, size_bytes, cudaMemcpyDeviceToHost));
  program.Ok(cudaFree(device_a));
  program.Ok(cudaFree(device_b));
  program.Ok(cudaFree(device_c));

  // A sample of rows: the host is slower at this than the device.
  const int step = n > 256 ? n / 16 : 1;
  for (int row = 0; row < n; row += step) {
    for (int column = 0; column < n; ++column) {
      double sum = 0;
      for (int k = 0; k < n; ++k) sum += static_cast<double>(a[row * n + k]) * b[k * n + column];
      program.Expect(std::fabs(c[row * n + column] - sum) <= 1e-4 * n, "wrong element");
    }
  }
  return program.Finish("edge=%d", n);
}
