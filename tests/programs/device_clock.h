// SPDX-License-Identifier: Apache-2.0
// Device-side waiting, for programs that need a kernel to be running while something else happens.
#pragma once

#include <cstdint>

__device__ inline uint64_t DeviceNanoseconds() {
  uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

// Waits until the host has written something else than 0 to `flag` (mapped host memory). Gives up
// after `limit_ns`, so that a broken driver shows as a failed check and not as a hang.
__device__ inline bool WaitForHost(const volatile uint32_t* flag, uint64_t limit_ns) {
  const uint64_t begin = DeviceNanoseconds();
  while (*flag == 0) {
    if (DeviceNanoseconds() - begin > limit_ns) return false;
  }
  return true;
}
