// SPDX-License-Identifier: Apache-2.0
// Limits how many log lines one tenant can cause: a burst, then one per refill period. Further lines are counted, and
// the count is reported with the next line that is allowed. So no tenant can fill a disk or crowd out others' lines
// with its own, however the log is collected.
//
// A value; one thread at a time. The caller supplies the time, in nanoseconds of any clock that does not run backwards.
#pragma once

#include <chrono>
#include <cstdint>

#include "agent/node/token_bucket.h"

namespace gpuloom {

class LineBudget {
 public:
  // A pod of eight processes that start and end is logged in full; a process that restarts endlessly costs some
  // megabytes a day.
  static constexpr uint32_t kAtOnce = 64;
  static constexpr uint64_t kRefillNs = 2'000'000'000;

  LineBudget() = default;
  // Of lines that come for another reason than a tenant.
  LineBudget(uint32_t at_once, std::chrono::nanoseconds refill) : lines_(at_once, refill) {}

  // Returns false if the line must be left out. Otherwise *left_out is how many were left out since the last one
  // written.
  [[nodiscard]] bool Take(uint64_t now_ns, uint64_t* left_out) {
    if (!lines_.Take(now_ns)) {
      ++left_out_;
      return false;
    }
    *left_out = left_out_;
    left_out_ = 0;
    return true;
  }

  // Whether it is full again, like a new one; its count of lines left out is lost with it.
  bool IsFull(uint64_t now_ns) const { return lines_.IsFull(now_ns); }

 private:
  TokenBucket lines_{kAtOnce, std::chrono::nanoseconds(kRefillNs)};
  uint64_t left_out_ = 0;
};

}  // namespace gpuloom
