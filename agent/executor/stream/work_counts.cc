// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/work_counts.h"

#include <algorithm>
#include <iterator>

#include "agent/executor/stream/stream_command.h"

namespace gpuloom::executor {
namespace {

using control::WorkCounts;

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

void CountCopy(const StreamCommand& command, WorkCounts* counts) {
  if (const auto* copy = std::get_if<CopyWork>(&command.work)) {
    const wire::Copy::Request& request = copy->request;
    if (request.kind == wire::CopyKind::kHostToHost) return;
    Add(request.kind == wire::CopyKind::kHostToDevice   ? kToDevice
        : request.kind == wire::CopyKind::kDeviceToHost ? kFromDevice
                                                        : kOnDevice,
        request.size_bytes, counts);
  } else if (std::holds_alternative<CopyInlineWork>(command.work)) {
    Add(kToDevice, command.payload.size(), counts);
  } else if (const auto* block = std::get_if<CopyBlockWork>(&command.work)) {
    const wire::GraphCopy& copy = block->copy;
    const bool from_host = copy.from.space == wire::GraphCopySpace::kHost;
    const bool to_host = copy.to.space == wire::GraphCopySpace::kHost;
    if (from_host && to_host) return;
    Add(from_host ? kToDevice
        : to_host ? kFromDevice
                  : kOnDevice,
        copy.width_bytes * copy.height * copy.depth, counts);
  }
}

void Observe(uint64_t took_ns, control::Histogram* histogram) {
  const auto* bound = std::lower_bound(std::begin(control::kHistogramBoundsNs),
                                       std::end(control::kHistogramBoundsNs), took_ns);
  ++histogram->counts[bound - std::begin(control::kHistogramBoundsNs)];
  histogram->sum_ns += took_ns;
}

}  // namespace gpuloom::executor
