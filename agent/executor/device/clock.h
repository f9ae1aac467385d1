// SPDX-License-Identifier: Apache-2.0
// The clock of everything that the executor measures and waits for. Safe from any thread; nothing
// fails.
#pragma once

#include <time.h>

#include <cstdint>

namespace gpuloom::executor {

// CLOCK_MONOTONIC, nanoseconds.
inline uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpuloom::executor
