// SPDX-License-Identifier: Apache-2.0
// Device reset and a new start, again and again: memory, streams, variables and kernels begin anew;
// what static destructors and thread-local objects do with CUDA after main works, or is refused as
// the runtime says.
#include <thread>

#include "check.h"

__device__ int counter = 3;

__global__ void Count(int* out) { *out = ++counter; }

// Outlives main: its destructor runs among the runtime's own.
struct Late {
  int* memory = nullptr;
  ~Late() {
    const cudaError_t result = memory == nullptr ? cudaSuccess : cudaFree(memory);
    const bool fine = result == cudaSuccess || result == cudaErrorCudartUnloading;
    std::printf("%s after main\n", fine ? "PASS" : "FAIL");
    std::fflush(stdout);
  }
};

Late late;

struct PerThread {
  cudaStream_t stream = nullptr;
  ~PerThread() {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
};

thread_local PerThread per_thread;

int main() {
  Program program("reset");
  int total = 0;
  for (int round = 0; round < 3; ++round) {
    int* out = nullptr;
    cudaStream_t stream;
    program.Ok(cudaMalloc(&out, sizeof(int)));
    program.Ok(cudaStreamCreate(&stream));
    Count<<<1, 1, 0, stream>>>(out);
    Count<<<1, 1, 0, stream>>>(out);
    program.Ok(cudaStreamSynchronize(stream));
    int value = 0;
    program.Ok(cudaMemcpy(&value, out, sizeof(value), cudaMemcpyDeviceToHost));
    program.Expect(value == 5, "the variable did not begin anew");
    total += value;
    program.Ok(cudaDeviceReset());
    program.Fails(cudaFree(out), cudaErrorInvalidValue);
  }
  std::thread([&program] { program.Ok(cudaStreamCreate(&per_thread.stream)); }).join();
  program.Ok(cudaMalloc(&late.memory, 1 << 20));
  program.Ok(cudaDeviceSynchronize());
  return program.Finish("total=%d", total);
}
