// SPDX-License-Identifier: Apache-2.0
// How many lines of the log one tenant may cause: some at once, then one in a while. What it causes beyond is
// counted, and told with the next line that it may cause. So no tenant fills a disk, or hides others' lines among
// its own, whoever collects the log.
//
// Pure; of one thread at a time. The time is the caller's, in nanoseconds of any clock that does not run backwards.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom {

class LineBudget {
 public:
  // A pod of eight processes that start and end is told of in full; a process that comes back without end
  // costs some megabytes a day.
  static constexpr uint32_t kAtOnce = 64;
  static constexpr uint64_t kRefillNs = 2'000'000'000;

  // False: the line is to be left out. Else *left_out is how many were, since the last that was written.
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
