// SPDX-License-Identifier: Apache-2.0
// Writes the trace of a machine's GPUs to a file (proto/trace/event_file.h), and sums it up. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "proto/control/client.h"
#include "proto/trace/part.h"
#include "proto/trace/sum.h"

namespace gpuloom::run {

// What one GPU's scheduler has delivered.
struct TracedGpu {
  std::string name;  // its UUID
  control::Client::Trace trace;
  std::vector<trace::Part> parts;  // those of trace.parts, in the same order
  trace::Window window;

  std::vector<uint64_t> SessionsOf(uint64_t executor_id) const;
};

// One sum for each part, GPU by GPU.
std::vector<trace::PartSum> SumUp(const std::vector<TracedGpu>& gpus);

// `sums` as SumUp returns them. Returns false with errno if the file could not be written completely.
[[nodiscard]] bool WriteTraceFile(const std::vector<TracedGpu>& gpus,
                                  const std::vector<trace::PartSum>& sums, FILE* file);

}  // namespace gpuloom::run
