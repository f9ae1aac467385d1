// SPDX-License-Identifier: Apache-2.0
// The clock by which the node's programs measure, and which the times of a trace are on. Safe from any thread and in a
// signal handler; nothing fails.
#pragma once

#include <time.h>

#include <cstdint>

namespace gpuloom {

// CLOCK_MONOTONIC, nanoseconds.
inline uint64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace gpuloom
