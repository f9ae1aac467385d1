// SPDX-License-Identifier: Apache-2.0
#include "proto/trace/sum.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace gpuloom::trace {
namespace {

using wire::TraceKind;
using wire::TraceRecord;

bool IsCopy(TraceKind kind) {
  return kind == TraceKind::kCopyToDevice || kind == TraceKind::kCopyFromDevice ||
         kind == TraceKind::kCopyOnDevice;
}

// What a tenant is charged as computing: all but what the copy engines do.
bool Computes(TraceKind kind) {
  return kind != TraceKind::kCopyToDevice && kind != TraceKind::kCopyFromDevice;
}

// Begin and end, in nanoseconds.
using Interval = std::pair<uint64_t, uint64_t>;

// The time in which at least one of them was under way: kernels run side by side, and a sum of
// their times could exceed the time that there was. Sorts them.
uint64_t UnionNs(std::vector<Interval>* intervals) {
  std::sort(intervals->begin(), intervals->end());
  uint64_t sum_ns = 0;
  uint64_t until_ns = 0;
  for (const auto& [begin_ns, end_ns] : *intervals) {
    const uint64_t from_ns = std::max(begin_ns, until_ns);
    if (end_ns > from_ns) sum_ns += end_ns - from_ns;
    until_ns = std::max(until_ns, end_ns);
  }
  return sum_ns;
}

}  // namespace

PartSum SumUp(const Part& part) {
  PartSum sum;
  std::vector<Interval> all;
  std::map<uint64_t, std::vector<Interval>> by_session;
  part.ForEach([&](const TraceRecord& record) {
    const auto kind = static_cast<TraceKind>(record.kind);
    ++sum.records;
    Sum& its = sum.of_each[record.session_id];
    if (kind == TraceKind::kKernel) its.kernels += record.commands;
    if (IsCopy(kind)) its.copies += record.commands;
    if (!Computes(kind)) return;
    all.emplace_back(record.begin_ns, record.end_ns);
    by_session[record.session_id].emplace_back(record.begin_ns, record.end_ns);
  });
  sum.compute_ns = UnionNs(&all);
  for (auto& [id, intervals] : by_session) sum.of_each[id].compute_ns = UnionNs(&intervals);
  return sum;
}

}  // namespace gpuloom::trace
