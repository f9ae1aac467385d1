// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/work_counts.h"

#include <algorithm>
#include <iterator>

#include "agent/executor/copy/host_copy.h"
#include "agent/executor/stream/stream_command.h"
#include "agent/executor/stream/tally.h"

namespace gpuloom::executor {
namespace {

using control::WorkCounts;

// The two counters of WorkCounts for one direction.
struct Direction {
  uint64_t WorkCounts::*copies;
  uint64_t WorkCounts::*bytes;
};
constexpr Direction kToDevice{&WorkCounts::copies_to_device, &WorkCounts::bytes_to_device};
constexpr Direction kFromDevice{&WorkCounts::copies_from_device, &WorkCounts::bytes_from_device};
constexpr Direction kOnDevice{&WorkCounts::copies_on_device, &WorkCounts::bytes_on_device};

void Add(const Direction& direction, uint64_t bytes, WorkCounts* counts) {
  ++(counts->*direction.copies);
  counts->*direction.bytes += bytes;
}

}  // namespace

// The engine already tells the direction, and saves looking at the ends of a copy again.
void CountCopy(const StreamCommand& command, arbiter::Engine engine, WorkCounts* counts) {
  const Direction& direction = engine == arbiter::Engine::kCopyToDevice     ? kToDevice
                               : engine == arbiter::Engine::kCopyFromDevice ? kFromDevice
                                                                            : kOnDevice;
  if (const auto* copy = std::get_if<CopyWork>(&command.work)) {
    // Those are made by a worker, not by the device.
    if (copy->request.kind == wire::CopyKind::kHostToHost) return;
    Add(direction, copy->request.size_bytes, counts);
  } else if (std::holds_alternative<CopyInlineWork>(command.work)) {
    Add(direction, command.payload.size(), counts);
  } else if (const auto* block = std::get_if<CopyBlockWork>(&command.work)) {
    if (IsHostCopy(block->copy)) return;
    Add(direction, BytesOf(block->copy), counts);
  }
}

// `counts` has one place more than there are bounds, for what exceeds the last one.
void Observe(uint64_t took_ns, control::Histogram* histogram) {
  const auto* bound = std::lower_bound(std::begin(control::kHistogramBoundsNs),
                                       std::end(control::kHistogramBoundsNs), took_ns);
  ++histogram->counts[bound - std::begin(control::kHistogramBoundsNs)];
  histogram->sum_ns += took_ns;
}

}  // namespace gpuloom::executor
