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
  const double uniform =
      (static_cast<double>(random_.Next() >> 11) + 0.5) / 9007199254740992.0;  // 2^53
  return static_cast<uint64_t>(-std::log(uniform) * mean_ns_);
}

}  // namespace gpuloom::bench
