// SPDX-License-Identifier: Apache-2.0
// What the agent knows, in Prometheus' text format. docs/metrics.md lists all metrics; a test compares it. Labels are
// bounded: names of pods and namespaces by the ledger, everything else by our own tables. FormatMetrics is pure;
// PolicyHistory is a value, one thread at a time.
#pragma once

#include <iterator>
#include <string>

#include "agent/clock.h"
#include "agent/metrics/ledger.h"
#include "agent/metrics/node_figures.h"

namespace gpuloom {

// The policy's changes and errors since the agent began.
struct PolicyHistory {
  uint64_t generation = 0;
  Clock::Time changed_at;
  std::string trouble;  // empty: the file is in force
  std::string last_error;
  Clock::Time error_at;  // when that one was first seen

  void Follow(const NodeFigures& node, Clock::Time now);
};

// The names of faults as labels and in the JSON API, by control::Fault.
inline constexpr const char* kFaultNames[] = {"broke_protocol", "lost_device", "did_not_drain",
                                              "lost_executor", "long_kernel"};
static_assert(std::size(kFaultNames) == control::kFaults, "each fault has its name");

// `wall_ahead`: Clock::WallAhead of the clock of all these times.
std::string FormatMetrics(const Ledger& ledger, const NodeFigures& node,
                          const PolicyHistory& policy, Clock::Duration wall_ahead);

}  // namespace gpuloom
