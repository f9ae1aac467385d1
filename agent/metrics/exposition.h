// SPDX-License-Identifier: Apache-2.0
// What the agent knows, in Prometheus' text format. The table of all metrics is docs/metrics.md, which a test compares.
// Labels are bounded: names of pods and namespaces by the ledger, everything else by tables of our own. Pure.
#pragma once

#include <iterator>
#include <string>

#include "agent/clock.h"
#include "agent/metrics/ledger.h"
#include "agent/metrics/node_figures.h"

namespace gpuloom {

// What has become of the policy since the agent began.
struct PolicyHistory {
  uint64_t generation = 0;
  Clock::Time changed_at;
  std::string trouble;  // empty: the file is in force
  std::string last_error;
  Clock::Time error_at;  // when that one was first seen

  void Follow(const NodeFigures& node, Clock::Time now);
};

// The names of faults, directions and engines, as labels and in the JSON API. By enum or in the order of the struct.
inline constexpr const char* kFaultNames[] = {"broke_protocol", "lost_device", "did_not_drain",
                                              "lost_executor", "long_kernel"};
static_assert(std::size(kFaultNames) == control::kFaults, "each fault has its name");

std::string FormatMetrics(const Ledger& ledger, const NodeFigures& node,
                          const PolicyHistory& policy);

}  // namespace gpuloom
