// SPDX-License-Identifier: Apache-2.0
// Variables of the module: __device__ and __constant__, with and without initial values, read and
// written by kernels and by the host.
#include <vector>

#include "check.h"

__device__ int counter = 7;
__device__ float table[64];
__constant__ float coefficients[4] = {1.0f, 2.0f, 3.0f, 4.0f};
__device__ int* pointer_to_counter = &counter;  // an address that the loader must fill in
__device__ const char text[] = "gpuloom";

__global__ void UseGlobals(float* out, int* through_pointer) {
  const int i = threadIdx.x;
  float value = 0;
  for (int k = 3; k >= 0; --k) value = value * i + coefficients[k];
  out[i] = value + table[i];
  if (i == 0) {
    *pointer_to_counter += 100;
    *through_pointer = counter + text[6];
  }
}

int main() {
  Program program("globals");
  constexpr int kCount = 64;
  std::vector<float> host_table(kCount);
  for (int i = 0; i < kCount; ++i) host_table[i] = 1000.0f * i;
  program.Ok(cudaMemcpyToSymbol(table, host_table.data(), sizeof(table)));
  const float changed = 10.0f;
  program.Ok(cudaMemcpyToSymbol(coefficients, &changed, sizeof(changed), 2 * sizeof(float)));

  size_t size_bytes = 0;
  void* address = nullptr;
  program.Ok(cudaGetSymbolSize(&size_bytes, table));
  program.Expect(size_bytes == sizeof(table), "wrong symbol size");
  program.Ok(cudaGetSymbolAddress(&address, counter));
  int seen = 0;
  program.Ok(cudaMemcpy(&seen, address, sizeof(seen), cudaMemcpyDeviceToHost));
  program.Expect(seen == 7, "the initial value is missing");

  float* out;
  int* through_pointer;
  program.Ok(cudaMalloc(&out, kCount * sizeof(float)));
  program.Ok(cudaMalloc(&through_pointer, sizeof(int)));
  UseGlobals<<<1, kCount>>>(out, through_pointer);
  program.Ok(cudaGetLastError());
  std::vector<float> values(kCount);
  program.Ok(cudaMemcpy(values.data(), out, kCount * sizeof(float), cudaMemcpyDeviceToHost));
  for (int i = 0; i < kCount; ++i) {
    const float x = static_cast<float>(i);
    const float expected = ((4 * x + 10) * x + 2) * x + 1 + 1000.0f * x;
    program.Expect(values[i] == expected, "wrong value");
  }
  program.Ok(cudaMemcpyFromSymbol(&seen, counter, sizeof(seen)));
  program.Expect(seen == 107, "the kernel's write to a global is missing");
  program.Ok(cudaMemcpy(&seen, through_pointer, sizeof(seen), cudaMemcpyDeviceToHost));
  program.Expect(seen == 107 + 'm', "the pointer between globals is wrong");
  program.Ok(cudaFree(out));
  program.Ok(cudaFree(through_pointer));
  return program.Finish("symbols=5");
}
