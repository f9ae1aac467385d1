// SPDX-License-Identifier: Apache-2.0
// Events: timing, queries, and the errors of wrong use.
#include "check.h"
#include "device_clock.h"

__global__ void Spin(uint64_t duration_ns) {
  const uint64_t begin = DeviceNanoseconds();
  while (DeviceNanoseconds() - begin < duration_ns) {
  }
}

__global__ void WaitForFlag(const volatile uint32_t* flag) { WaitForHost(flag, 20'000'000'000); }

int main() {
  Program program("events");
  cudaEvent_t start, end, untimed, unrecorded;
  program.Ok(cudaEventCreate(&start));
  program.Ok(cudaEventCreate(&end));
  program.Ok(cudaEventCreate(&unrecorded));
  program.Ok(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
  Spin<<<1, 1>>>(1000);  // loads the code, which would count otherwise

  constexpr float kSpinMs = 60;
  program.Ok(cudaEventRecord(start));
  Spin<<<1, 1>>>(static_cast<uint64_t>(kSpinMs * 1e6));
  program.Ok(cudaEventRecord(end));
  program.Ok(cudaEventSynchronize(end));
  float elapsed_ms = 0;
  program.Ok(cudaEventElapsedTime(&elapsed_ms, start, end));
  // The lower bound is exact; the upper one only tells milliseconds from other units.
  program.Expect(elapsed_ms >= kSpinMs * 0.95f && elapsed_ms < kSpinMs * 100, "wrong elapsed time");

  uint32_t* flag;
  program.Ok(cudaHostAlloc(&flag, sizeof(*flag), cudaHostAllocMapped));
  *flag = 0;
  WaitForFlag<<<1, 1>>>(flag);
  program.Ok(cudaEventRecord(end));
  program.Expect(cudaEventQuery(end) == cudaErrorNotReady, "an event is done before its stream");
  program.Expect(cudaEventQuery(unrecorded) == cudaSuccess, "an unrecorded event is not done");
  program.Fails(cudaEventElapsedTime(&elapsed_ms, start, end), cudaErrorNotReady);
  *reinterpret_cast<volatile uint32_t*>(flag) = 1;
  program.Ok(cudaEventSynchronize(end));
  program.Ok(cudaEventQuery(end));

  program.Ok(cudaEventRecord(untimed));
  program.Ok(cudaEventSynchronize(untimed));
  program.Fails(cudaEventElapsedTime(&elapsed_ms, start, untimed), cudaErrorInvalidResourceHandle);
  program.Fails(cudaEventElapsedTime(&elapsed_ms, start, unrecorded),
                cudaErrorInvalidResourceHandle);
  program.Ok(cudaEventDestroy(start));
  program.Ok(cudaEventDestroy(end));
  program.Ok(cudaEventDestroy(untimed));
  program.Ok(cudaEventDestroy(unrecorded));
  program.Ok(cudaFreeHost(flag));
  return program.Finish("elapsed_ms=%.1f", elapsed_ms);
}
