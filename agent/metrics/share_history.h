// SPDX-License-Identifier: Apache-2.0
// The share of each GPU's time in which each tenant computed, in steps over the last minutes. For the node's page; lost
// when the agent ends. A value; its owner, the observer, guards it with a mutex. Keeps nothing of the ledger. Time is
// an argument.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "agent/metrics/ledger.h"

namespace gpuloom {

class ShareHistory {
 public:
  // A few of the executors' reports, which come once a second.
  static constexpr Clock::Duration kStep = std::chrono::seconds(5);
  static constexpr size_t kSteps = 60;

  // Call it after each update of the ledger; a step ends after kStep.
  void Follow(const Ledger& ledger, Clock::Time now);

  // Shares from 0 to 1, one for each step so far, the oldest first; empty: nothing in any of them. Those of a GPU's tenants are 1
  // together at most.
  std::vector<double> Of(const TenantName& tenant) const;
  std::vector<double> OfGpu(const std::string& uuid) const;
  size_t steps() const { return steps_.size(); }

 private:
  // Only tenants and GPUs that have computed something.
  struct Step {
    std::map<TenantName, double> tenants;
    std::map<std::string, double> gpus;
  };

  std::deque<Step> steps_;
  Clock::Time began_;  // when the current step began
  // What had been charged at that time.
  std::map<TenantName, uint64_t> tenants_ns_;
  std::map<std::string, uint64_t> gpus_ns_;
};

}  // namespace gpuloom
