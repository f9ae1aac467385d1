// SPDX-License-Identifier: Apache-2.0
// One kernel that runs for a given time, for tests that need the device to be busy. Says
// `spin: running` once the kernel has begun. Usage: spin [seconds]
#include "check.h"
#include "device_clock.h"

__global__ void Spin(volatile uint32_t* begun, uint64_t duration_ns) {
  const uint64_t begin = DeviceNanoseconds();
  *begun = 1;
  while (DeviceNanoseconds() - begin < duration_ns) {
  }
}

int main(int argc, char** argv) {
  Program program("spin");
  const double seconds = NumberArgument(argc, argv, 1);
  volatile uint32_t* begun;
  program.Ok(cudaHostAlloc(const_cast<uint32_t**>(&begun), sizeof(*begun), cudaHostAllocMapped));
  *begun = 0;
  Spin<<<1, 1>>>(begun, static_cast<uint64_t>(seconds * 1e9));
  program.Ok(cudaGetLastError());
  while (*begun == 0) {
    if (cudaStreamQuery(nullptr) != cudaErrorNotReady) break;
  }
  std::printf("spin: running\n");
  std::fflush(stdout);
  program.Ok(cudaDeviceSynchronize());
  program.Expect(*begun == 1, "the kernel did not run");
  return program.Finish("seconds=%g", seconds);
}
