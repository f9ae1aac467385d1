// SPDX-License-Identifier: Apache-2.0
// Limits how many log lines one tenant can cause: a burst, then one per refill period. Further lines are counted, and
// the count is reported with the next line that is allowed. So no tenant can fill a disk or bury others' lines under
// its own, whoever collects the log.
//
// Pure; one thread at a time. The caller supplies the time, in nanoseconds of any clock that does not run backwards.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom {

class LineBudget {
 public:
  // A pod of eight processes that start and end is logged in full; a process that restarts endlessly costs some
  // megabytes a day.
  static constexpr uint32_t kAtOnce = 64;
  static constexpr uint64_t kRefillNs = 2'000'000'000;

  // Returns false if the line must be left out. Otherwise *left_out is how many were left out since the last one
  // written.
  [[nodiscard]] bool Take(uint64_t now_ns, uint64_t* left_out) {
    const uint64_t refills = (now_ns - std::min(now_ns, since_ns_)) / kRefillNs;
    if (refills >= kAtOnce - lines_) {
      lines_ = kAtOnce;
      since_ns_ = now_ns;
    } else {
      lines_ += static_cast<uint32_t>(refills);
      since_ns_ += refills * kRefillNs;
    }
    if (lines_ == 0) {
      ++left_out_;
      return false;
    }
    --lines_;
    *left_out = left_out_;
    left_out_ = 0;
    return true;
  }

 private:
  uint32_t lines_ = kAtOnce;
  uint64_t since_ns_ = 0;
  uint64_t left_out_ = 0;
};

}  // namespace gpuloom
