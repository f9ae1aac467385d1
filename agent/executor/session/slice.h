// SPDX-License-Identifier: Apache-2.0
// A time slice of the ring thread. Work done in pieces checks after each piece whether the slice is used up. At
// least one piece is always done, so that every session makes progress, however short the slice; so a slice is
// exceeded by at most one piece. Time starts at the first check: if there is nothing to do, the clock is not read.
//
// Made on the ring thread's stack for a round or a session's part of it. Ring thread only. Nothing fails.
#pragma once

#include <cstdint>

#include "agent/node/clock.h"

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
