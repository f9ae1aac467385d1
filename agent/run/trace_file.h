// SPDX-License-Identifier: Apache-2.0
// Writes a trace in the Trace Event Format, which Perfetto and chrome://tracing load, and sums it up.
// docs/tracing.md explains the fields. One thread.
#pragma once

#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "agent/run/trace_part.h"

namespace gpuloom::run {

// What one GPU's scheduler has given.
struct TracedGpu {
  std::string name;  // its UUID
  control::Client::Trace trace;
  std::vector<TracePart> parts;  // of trace.parts, in their order
  TraceWindow window;
};

// Of one session, of what is nobody's (0), and of the executor's own work (kTraceOfExecutor).
struct TraceSum {
  const control::TraceSession* session = nullptr;  // null: the other two
  uint64_t kernels = 0;
  uint64_t copies = 0;
  uint64_t compute_ns = 0;  // in which any kernel, fill or copy on the device of it ran
};

struct TracePartSum {
  uint64_t records = 0;
  uint64_t compute_ns = 0;  // the same of all together
  std::map<uint64_t, TraceSum> sums;
};

// One for each part, GPU by GPU.
std::vector<TracePartSum> SumUp(const std::vector<TracedGpu>& gpus);

// Returns false with errno if it could not be written whole.
[[nodiscard]] bool WriteTraceFile(const std::vector<TracedGpu>& gpus,
                                  const std::vector<TracePartSum>& sums, FILE* file);

}  // namespace gpuloom::run
