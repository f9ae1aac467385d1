// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/work_counts.h"

#include <cmath>

namespace gpuloom::bench {

void WindowCounts::Add(uint64_t now_ns, uint64_t kernels) {
  if (now_ns >= start_ns_ && now_ns < end_ns()) {
    counts_[(now_ns - start_ns_) / window_ns_] += kernels;
  }
}

std::string WindowCounts::Text() const {
  std::string text = "[";
  for (const uint64_t count : counts_) {
    if (text.size() > 1) text += ',';
    text += std::to_string(count);
  }
  return text + ']';
}

uint64_t RandomPauses::NextNs() {
  // splitmix64: the library's distributions differ between implementations.
  state_ += 0x9e37'79b9'7f4a'7c15;
  uint64_t mixed = state_;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58'476d'1ce4'e5b9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d0'49bb'1331'11eb;
  mixed ^= mixed >> 31;
  const double uniform = (static_cast<double>(mixed >> 11) + 0.5) / 9007199254740992.0;  // 2^53
  return static_cast<uint64_t>(-std::log(uniform) * mean_ns_);
}

}  // namespace gpuloom::bench
