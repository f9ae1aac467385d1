// SPDX-License-Identifier: Apache-2.0
// Sums up a part of a trace, by session. Pure except that it reads the part's region; one thread per part.
#pragma once

#include <cstdint>
#include <map>

#include "proto/trace/part.h"

namespace gpuloom::trace {

struct Sum {
  uint64_t kernels = 0;
  uint64_t copies = 0;
  uint64_t compute_ns =
      0;  // the time in which any of its kernels, fills or copies on the device ran
};

struct PartSum {
  uint64_t records = 0;
  uint64_t compute_ns = 0;          // the same for all sessions together
  std::map<uint64_t, Sum> of_each;  // by session id, as in Part::ForEach
};

PartSum SumUp(const Part& part);

}  // namespace gpuloom::trace
