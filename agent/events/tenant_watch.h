// SPDX-License-Identifier: Apache-2.0
// Turns what has happened to a GPU's tenants since the scheduler's last report into events of their pods: refused
// memory, processes that were not admitted, faults, multiprocessors that do not follow the policy. Counts from before
// the first report make no events, unless Resume was given the counts that an earlier agent had seen
// (tenant_watches.h).
//
// A value, owned by TenantWatches, used from one thread; keeps nothing of the report. Nothing fails.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "agent/events/event.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

class TenantWatch {
 public:
  struct Counts {
    uint64_t memory_refusals = 0;
    uint64_t session_refusals = 0;
    uint64_t long_kernels = 0;
    uint64_t pending_partitions = 0;
    uint64_t faults[control::kFaults] = {};
    bool operator==(const Counts&) const = default;
  };

  // Call before the first report: takes over the counts that another agent has seen, by allocation. What has been
  // counted since then makes events.
  void Resume(std::map<std::string, Counts> known);
  std::vector<Event> Look(const GpuReport& report);
  // As of the last report, by allocation.
  const std::map<std::string, Counts>& known() const { return known_; }

 private:
  bool has_looked_ = false;
  std::map<std::string, Counts> known_;  // by allocation
};

}  // namespace gpuloom
