// SPDX-License-Identifier: Apache-2.0
// Reductions: warp shuffles, votes, shared memory and atomics of several types. Usage: reduce
// [elements]
#include <algorithm>
#include <vector>

#include "check.h"

struct Totals {
  unsigned long long sum;
  int maximum;
  int minimum;
  unsigned odd_count;
  unsigned bits;
  float halves;
  unsigned swaps;
};

__device__ int WarpSum(int value) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, distance);
  }
  return value;
}

__global__ void Reduce(const int* values, int n, Totals* totals) {
  __shared__ int warp_sums[32];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  const int lane = threadIdx.x % 32;
  const int warp = threadIdx.x / 32;
  const int value = i < n ? values[i] : 0;

  const int sum = WarpSum(value);
  if (lane == 0) warp_sums[warp] = sum;
  const unsigned odd = __ballot_sync(0xffffffffu, value & 1);
  if (lane == 0) atomicAdd(&totals->odd_count, __popc(odd));
  __syncthreads();
  if (warp == 0) {
    const int warps = blockDim.x / 32;
    const int block_sum = WarpSum(lane < warps ? warp_sums[lane] : 0);
    if (lane == 0) {
      atomicAdd(&totals->sum, static_cast<unsigned long long>(block_sum));
      atomicAdd(&totals->halves, 0.5f * block_sum);
      // A lock-free increment, the long way.
      unsigned seen = totals->swaps;
      unsigned assumed;
      do {
        assumed = seen;
        seen = atomicCAS(&totals->swaps, assumed, assumed + 1);
      } while (seen != assumed);
    }
  }
  if (i < n) {
    atomicMax(&totals->maximum, value);
    atomicMin(&totals->minimum, value);
    atomicOr(&totals->bits, 1u << (value % 32));
  }
}

int main(int argc, char** argv) {
  Program program("reduce");
  const int n = static_cast<int>(NumberArgument(argc, argv, 20'000));
  constexpr int kBlock = 256;
  const int blocks = (n + kBlock - 1) / kBlock;
  std::vector<int> values(n);
  Totals expected{0, 0, 1 << 30, 0, 0, 0, static_cast<unsigned>(blocks)};
  uint32_t state = 12345;
  for (int& value : values) {
    state = state * 1664525 + 1013904223;
    value = static_cast<int>(state >> 24) + 3;
    expected.sum += value;
    expected.maximum = std::max(expected.maximum, value);
    expected.minimum = std::min(expected.minimum, value);
    expected.odd_count += value & 1;
    expected.bits |= 1u << (value % 32);
  }

  int* device_values;
  Totals* device_totals;
  const Totals start{0, 0, 1 << 30, 0, 0, 0, 0};
  program.Ok(cudaMalloc(&device_values, n * sizeof(int)));
  program.Ok(cudaMalloc(&device_totals, sizeof(Totals)));
  program.Ok(cudaMemcpy(device_values, values.data(), n * sizeof(int), cudaMemcpyHostToDevice));
  program.Ok(cudaMemcpy(device_totals, &start, sizeof(start), cudaMemcpyHostToDevice));
  Reduce<<<blocks, kBlock>>>(device_values, n, device_totals);
  program.Ok(cudaGetLastError());
  Totals totals;
  program.Ok(cudaMemcpy(&totals, device_totals, sizeof(totals), cudaMemcpyDeviceToHost));
  program.Ok(cudaFree(device_values));
  program.Ok(cudaFree(device_totals));

  program.Expect(totals.sum == expected.sum, "wrong sum");
  program.Expect(totals.maximum == expected.maximum, "wrong maximum");
  program.Expect(totals.minimum == expected.minimum, "wrong minimum");
  program.Expect(totals.odd_count == expected.odd_count, "wrong vote");
  program.Expect(totals.bits == expected.bits, "wrong bits");
  program.Expect(totals.swaps == expected.swaps, "wrong compare-and-swap count");
  const double half = 0.5 * static_cast<double>(expected.sum);
  program.Expect(totals.halves > half * 0.9999 && totals.halves < half * 1.0001, "wrong float sum");
  return program.Finish("elements=%d sum=%llu", n, totals.sum);
}
