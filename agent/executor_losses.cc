// SPDX-License-Identifier: Apache-2.0
#include "agent/executor_losses.h"

#include <algorithm>
#include <utility>

#include "proto/control/connection.h"

namespace gpuloom {

bool ExecutorLosses::PointToGpu(const GpuReport& report, Clock::Time now) {
  // If several namespaces share a trust domain, the first by name stands for all: any of them may have ended its
  // executor.
  std::map<std::string, std::string> namespaces;  // by trust domain
  for (const control::AllocationState& state : report.allocations) {
    std::string name = control::TextOf(state.pod_namespace);
    const auto [known, is_new] = namespaces.emplace(control::TextOf(state.trust_domain), name);
    if (!is_new) known->second = std::min(known->second, name);
  }
  std::map<std::string, uint64_t> seen;
  // Compared by trust domain, because that is how the scheduler counts. A counter that has decreased belongs to a new
  // scheduler: its losses before this report are not counted.
  for (const control::DomainState& domain : report.domains) {
    const std::string name = control::TextOf(domain.name);
    const auto known = known_.find(name);
    const uint64_t before = known == known_.end() ? 0 : known->second;
    seen[name] = domain.executors_lost;
    const auto whose = namespaces.find(name);
    if (has_looked_ && domain.executors_lost > before && whose != namespaces.end()) {
      last_[whose->second] = now;
    }
  }
  known_ = std::move(seen);
  has_looked_ = true;
  std::erase_if(last_, [&](const auto& entry) { return now - entry.second >= kWindow; });
  if (last_.size() < 2) return false;
  // Reported once: the probe decides, and further losses with the same cause must not request one each.
  last_.clear();
  return true;
}

}  // namespace gpuloom
