// SPDX-License-Identifier: Apache-2.0
// For a thread that polls, between two looks: leaves the core to its sibling hyperthread for a moment.
#pragma once

namespace gpuloom {

inline void CpuPause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield" ::: "memory");
#endif
}

}  // namespace gpuloom
