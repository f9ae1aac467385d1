// SPDX-License-Identifier: Apache-2.0
// Between two looks of a thread that polls: leaves the core to its sibling hyperthread for a moment.
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
