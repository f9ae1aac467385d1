// SPDX-License-Identifier: Apache-2.0
// Per-thread default streams (nvcc --default-stream per-thread): each thread's default stream is
// its own, and the threads' work runs at the same time. Each of two threads starts a kernel that
// waits until the *other* thread's second kernel has run.
#include <atomic>
#include <thread>
#include <vector>

#include "check.h"
#include "device_clock.h"

__global__ void Meet(volatile uint32_t* mine, const volatile uint32_t* theirs, uint32_t* met) {
  *mine = 1;
  __threadfence_system();
  if (WaitForHost(theirs, 20'000'000'000)) *met = 1;
}

__global__ void Fill(int* values, int n, int value) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) values[i] = value;
}

int main() {
  Program program("ptds");
  constexpr int kCount = 2000;
  uint32_t* flags;
  uint32_t* met;
  program.Ok(cudaHostAlloc(&flags, 2 * sizeof(uint32_t), cudaHostAllocMapped));
  program.Ok(cudaHostAlloc(&met, 2 * sizeof(uint32_t), cudaHostAllocMapped));
  for (int i = 0; i < 2; ++i) flags[i] = met[i] = 0;
  // Once through, because loading a kernel's code may wait for running kernels.
  flags[1] = 1;
  Meet<<<1, 1>>>(&flags[0], &flags[1], &met[0]);
  Fill<<<1, 1>>>(reinterpret_cast<int*>(met), 0, 0);
  program.Ok(cudaDeviceSynchronize());
  flags[0] = flags[1] = met[0] = 0;
  std::atomic<int> wrong{0};
  // Neither allocates nor frees while the other's kernel waits for it: both may wait for the device.
  int* all_values;
  program.Ok(cudaMalloc(&all_values, 2 * kCount * sizeof(int)));
  const auto work = [&](int me) {
    int* values = all_values + me * kCount;
    Meet<<<1, 1>>>(&flags[me], &flags[1 - me], &met[me]);
    Fill<<<(kCount + 127) / 128, 128>>>(values, kCount, 17 + me);
    std::vector<int> host(kCount);
    program.Ok(cudaMemcpyAsync(host.data(), values, kCount * sizeof(int), cudaMemcpyDeviceToHost,
                               cudaStreamPerThread));
    program.Ok(cudaStreamSynchronize(cudaStreamPerThread));
    for (int value : host) wrong += value != 17 + me;
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  program.Ok(cudaFree(all_values));
  program.Expect(met[0] == 1 && met[1] == 1, "the threads' default streams did not run together");
  program.Expect(wrong == 0, "wrong element");

  // The legacy stream still exists under its own name, and waits for the threads' streams.
  int* value;
  program.Ok(cudaMalloc(&value, sizeof(int)));
  Fill<<<1, 1>>>(value, 1, 5);
  Fill<<<1, 1, 0, cudaStreamLegacy>>>(value, 1, 6);
  program.Ok(cudaStreamSynchronize(cudaStreamLegacy));
  int seen = 0;
  program.Ok(cudaMemcpy(&seen, value, sizeof(seen), cudaMemcpyDeviceToHost));
  program.Expect(seen == 6, "the legacy stream did not wait for the thread's stream");
  program.Ok(cudaFree(value));
  program.Ok(cudaFreeHost(flags));
  program.Ok(cudaFreeHost(met));
  return program.Finish("threads=2");
}
