// SPDX-License-Identifier: Apache-2.0
// A part of the ring thread's time. Who works in pieces asks behind each piece whether the slice is used
// up. One piece is always made, so that everybody gets on, however little there is; so a slice is
// exceeded by one piece at the most. The time begins with the first question: who has nothing to do does
// not look at the clock.
//
// Ring thread only.
#pragma once

#include <cstdint>

#include "agent/executor/device/spin.h"

namespace gpuloom::executor {

class Slice {
 public:
  explicit Slice(uint64_t length_ns, uint64_t (*clock)() = NowNs)
      : length_ns_(length_ns), clock_(clock) {}

  bool Over() {
    const uint64_t now_ns = clock_();
    if (begin_ns_ == 0) begin_ns_ = now_ns;
    return now_ns - begin_ns_ >= length_ns_;
  }

 private:
  const uint64_t length_ns_;
  uint64_t (*const clock_)();
  uint64_t begin_ns_ = 0;
};

}  // namespace gpuloom::executor
