// SPDX-License-Identifier: Apache-2.0
// The device's stream priorities are divided among the policy's classes, so that the blocks of a higher class are
// placed first whatever priorities programs request. Within its band a program keeps its own order, though two of its
// priorities may become one. With fewer than three levels, lower classes share the lowest. Plain value; safe from any
// thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "agent/arbiter/priority.h"

namespace gpuloom::executor {

struct PriorityBand {
  // CUDA's numbers, the lower the more urgent. `…_all`: the device's, which programs see.
  int least_all = 0;
  int greatest_all = 0;
  int least = 0;
  int greatest = 0;

  bool operator==(const PriorityBand&) const = default;

  // For a device with priorities from `least` to `greatest`.
  static PriorityBand Of(arbiter::Priority priority, int least, int greatest) {
    const int levels = least - greatest + 1;
    const int place = static_cast<int>(arbiter::kPriorities) - 1 - static_cast<int>(priority);
    const int begin = levels * place / static_cast<int>(arbiter::kPriorities);
    const int end = levels * (place + 1) / static_cast<int>(arbiter::kPriorities);
    return {least, greatest, least - begin, least - std::max(end - 1, begin)};
  }

  int Map(int asked) const {
    const int level = least_all - std::clamp(asked, greatest_all, least_all);
    return least - level * (least - greatest + 1) / (least_all - greatest_all + 1);
  }
};

}  // namespace gpuloom::executor
