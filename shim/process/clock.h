// SPDX-License-Identifier: Apache-2.0
// The monotonic clock, without the C++ library. Safe from any thread and any handler.
#pragma once

#include <time.h>

#include <cstdint>

namespace gpuloom {

inline int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace gpuloom
