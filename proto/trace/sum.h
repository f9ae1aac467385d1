// SPDX-License-Identifier: Apache-2.0
// What a part of a trace comes to, by session. Pure; safe from any thread.
#pragma once

#include <cstdint>
#include <map>

#include "proto/trace/part.h"

namespace gpuloom::trace {

struct Sum {
  uint64_t kernels = 0;
  uint64_t copies = 0;
  uint64_t compute_ns = 0;  // in which any kernel, fill or copy on the device of it ran
};

struct PartSum {
  uint64_t records = 0;
  uint64_t compute_ns = 0;          // the same of all together
  std::map<uint64_t, Sum> of_each;  // by session, as Part::ForEach has it
};

PartSum SumUp(const Part& part);

}  // namespace gpuloom::trace
