// SPDX-License-Identifier: Apache-2.0
// Orders memory between the threads and processes that run grids on the same memory. Safe from any
// thread.
#pragma once

#include <atomic>

namespace gpuloom::softgpu {

inline void Fence() {
#if defined(__SANITIZE_THREAD__)
  // ThreadSanitizer does not know fences; an exchange on a word of its own is one on x86.
  static std::atomic<int> word{0};
  word.exchange(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace gpuloom::softgpu
