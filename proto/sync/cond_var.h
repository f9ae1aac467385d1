// SPDX-License-Identifier: Apache-2.0
// Waiting for what a Mutex guards, on the monotonic clock. Callers must handle spurious wake-ups, except where they
// pass a condition:
//
//   changed_.Wait(mutex_, [this]() GPULOOM_REQUIRES(mutex_) { return stopping_ || !jobs_.empty(); });
//
// For the node side only: the shim must not need what glibc has only since 2.30.
#pragma once

#include <pthread.h>
#include <time.h>

#include <chrono>

#include "proto/sync/mutex.h"

namespace gpuloom {

class CondVar {
 public:
  using Clock = std::chrono::steady_clock;

  constexpr CondVar() = default;
  CondVar(const CondVar&) = delete;
  CondVar& operator=(const CondVar&) = delete;
  ~CondVar() { pthread_cond_destroy(&condition_); }

  void NotifyOne() { pthread_cond_signal(&condition_); }
  void NotifyAll() { pthread_cond_broadcast(&condition_); }

  void Wait(Mutex& mutex) GPULOOM_REQUIRES(mutex) { pthread_cond_wait(&condition_, &mutex.mutex_); }
  // Returns false on timeout.
  bool WaitUntil(Mutex& mutex, Clock::time_point end) GPULOOM_REQUIRES(mutex) {
    const auto since_boot = end.time_since_epoch();
    const auto seconds = std::chrono::floor<std::chrono::seconds>(since_boot);
    const timespec at{static_cast<time_t>(seconds.count()),
                      static_cast<long>(std::chrono::nanoseconds(since_boot - seconds).count())};
    return pthread_cond_clockwait(&condition_, &mutex.mutex_, CLOCK_MONOTONIC, &at) == 0;
  }

  // `holds` is called with the lock held, as its own annotation says; the analysis cannot see that it is the same
  // lock.
  template <typename Condition>
  void Wait(Mutex& mutex, Condition holds)
      GPULOOM_REQUIRES(mutex) GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
    while (!holds()) Wait(mutex);
  }
  // Returns whether it holds in the end.
  template <typename Condition>
  bool WaitUntil(Mutex& mutex, Clock::time_point end, Condition holds)
      GPULOOM_REQUIRES(mutex) GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
    while (!holds()) {
      if (!WaitUntil(mutex, end)) return holds();
    }
    return true;
  }
  template <typename Condition>
  bool WaitFor(Mutex& mutex, Clock::duration time, Condition holds)
      GPULOOM_REQUIRES(mutex) GPULOOM_NO_THREAD_SAFETY_ANALYSIS {
    return WaitUntil(mutex, Clock::now() + time, holds);
  }

 private:
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace gpuloom
