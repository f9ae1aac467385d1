// SPDX-License-Identifier: Apache-2.0
// Locks and waiting of our own: the C library's have symbol versions that older containers lack.
// Constant-initialised, no destructor, all-zero is unlocked; safe from any thread. Owned by what it guards;
// one in a static object can be used until the process is gone. Not for memory that is shared with
// another process. Clang's analysis checks what a lock guards (proto/sync/thread_annotations.h).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "proto/sync/cpu_pause.h"
#include "proto/sync/thread_annotations.h"

namespace gpuloom {

// Sleeps while *word == expected; may return early.
inline void FutexWait(std::atomic<uint32_t>* word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAIT_PRIVATE, expected, nullptr,
          nullptr, 0);
}
inline void FutexWake(std::atomic<uint32_t>* word, int count) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(word), FUTEX_WAKE_PRIVATE, count, nullptr, nullptr,
          0);
}

// A mutex of one word: free, taken, taken with sleepers. Not recursive.
class GPULOOM_CAPABILITY("mutex") Lock {
 public:
  void Acquire() GPULOOM_ACQUIRE() {
    uint32_t free = kFree;
    if (!word_.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) AcquireSlow();
  }
  void Release() GPULOOM_RELEASE() {
    if (word_.exchange(kFree, std::memory_order_release) == kContended) FutexWake(&word_, 1);
  }

 private:
  static constexpr uint32_t kFree = 0;
  static constexpr uint32_t kTaken = 1;
  static constexpr uint32_t kContended = 2;

  void AcquireSlow() {
    // What the lock guards takes less time than a system call; spin a little before sleeping.
    for (int i = 0; i < 100; ++i) {
      CpuPause();
      uint32_t free = kFree;
      if (word_.load(std::memory_order_relaxed) == kFree &&
          word_.compare_exchange_strong(free, kTaken, std::memory_order_acquire)) {
        return;
      }
    }
    while (word_.exchange(kContended, std::memory_order_acquire) != kFree) {
      FutexWait(&word_, kContended);
    }
  }

  std::atomic<uint32_t> word_{kFree};
};

class GPULOOM_SCOPED_CAPABILITY Holding {
 public:
  explicit Holding(Lock* lock) GPULOOM_ACQUIRE(lock) : lock_(lock) { lock_->Acquire(); }
  ~Holding() GPULOOM_RELEASE() { lock_->Release(); }
  Holding(const Holding&) = delete;
  Holding& operator=(const Holding&) = delete;

 private:
  Lock* lock_;
};

}  // namespace gpuloom
