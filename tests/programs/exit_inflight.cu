// SPDX-License-Identifier: Apache-2.0
// Ends while its kernels are still running. Usage: exit_inflight [seconds [how]], where how is
// `return` (default), `_exit` or `abort`.
#include <unistd.h>

#include <cstring>

#include "check.h"
#include "device_clock.h"

__global__ void Spin(uint64_t duration_ns) {
  const uint64_t begin = DeviceNanoseconds();
  while (DeviceNanoseconds() - begin < duration_ns) {
  }
}

int main(int argc, char** argv) {
  Program program("exit_inflight");
  const double seconds = NumberArgument(argc, argv, 1);
  const char* how = argc > 2 ? argv[2] : "return";
  void* memory;
  program.Ok(cudaMalloc(&memory, 8u << 20));
  cudaStream_t stream;
  program.Ok(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Spin<<<1, 1>>>(static_cast<uint64_t>(seconds * 1e9));
  Spin<<<1, 1, 0, stream>>>(static_cast<uint64_t>(seconds * 1e9));
  program.Ok(cudaGetLastError());
  const int status = program.Finish("seconds=%g how=%s", seconds, how);
  if (std::strcmp(how, "_exit") == 0) _exit(status);
  if (std::strcmp(how, "abort") == 0) std::abort();
  return status;
}
