// SPDX-License-Identifier: Apache-2.0
// What a process that works on a GPU keeps of its work, and when its next request begins. Pure: times are arguments, in
// nanoseconds of one clock. From one thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/bench/launch_sequence.h"

namespace gpuloom::bench {

// How many kernels were seen to be done in each of `windows` windows of `window_ns` from `start_ns` on. What is seen
// before or behind them is not counted.
class WindowCounts {
 public:
  WindowCounts(uint64_t start_ns, uint64_t window_ns, size_t windows)
      : start_ns_(start_ns), window_ns_(window_ns), counts_(windows) {}

  void Add(uint64_t now_ns, uint64_t kernels);
  uint64_t end_ns() const { return start_ns_ + window_ns_ * counts_.size(); }
  // As JSON: [12,9,…]
  std::string Text() const;

 private:
  uint64_t start_ns_;
  uint64_t window_ns_;
  std::vector<uint64_t> counts_;
};

// Pauses between one request's end and the next one's begin: exponentially distributed, the same from the same seed on
// every machine.
class RandomPauses {
 public:
  RandomPauses(double mean_ns, uint64_t seed) : mean_ns_(mean_ns), random_(seed) {}
  uint64_t NextNs();

 private:
  double mean_ns_;
  Random random_;
};

}  // namespace gpuloom::bench
