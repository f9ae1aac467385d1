// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/time_usage.h"

#include <algorithm>

namespace gpuloom::scheduler {
namespace {

using control::TimeUsage;

constexpr uint64_t TimeUsage::*kFigures[] = {
    &TimeUsage::compute_ns, &TimeUsage::copy_to_device_ns, &TimeUsage::copy_from_device_ns,
    &TimeUsage::queue_ns,   &TimeUsage::throttled_ns,      &TimeUsage::held_ns};
static_assert(sizeof(kFigures) / sizeof(kFigures[0]) * sizeof(uint64_t) == sizeof(TimeUsage),
              "every figure is summed");

}  // namespace

void RaiseTo(const TimeUsage& reported_untrusted, TimeUsage* known) {
  for (const auto figure : kFigures) {
    known->*figure = std::max(known->*figure, reported_untrusted.*figure);
  }
}

void AddTo(const TimeUsage& usage, TimeUsage* sum) {
  for (const auto figure : kFigures) {
    sum->*figure += std::min(usage.*figure, UINT64_MAX - sum->*figure);
  }
}

}  // namespace gpuloom::scheduler
