// SPDX-License-Identifier: Apache-2.0
#include "proto/sync/testing/passing_time.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace {

constexpr int64_t kSecond = 1'000'000'000;
constinit std::atomic<int64_t> ahead_ns{0};

bool Follows(clockid_t clock) {
  return clock == CLOCK_MONOTONIC || clock == CLOCK_REALTIME || clock == CLOCK_BOOTTIME ||
         clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_REALTIME_COARSE;
}

}  // namespace

// The C++ library refers to it, so the linker exports it from the test's program, before libc's.
extern "C" int clock_gettime(clockid_t clock, timespec* now) noexcept {
  if (syscall(SYS_clock_gettime, clock, now) != 0) return -1;
  if (!Follows(clock)) return 0;
  const int64_t ns = now->tv_nsec + ahead_ns.load(std::memory_order_relaxed);
  now->tv_sec += ns / kSecond;
  now->tv_nsec = ns % kSecond;
  return 0;
}

namespace gpuloom {

void PassTime(std::chrono::nanoseconds time) { ahead_ns += time.count(); }

}  // namespace gpuloom
