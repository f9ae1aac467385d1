// SPDX-License-Identifier: Apache-2.0
// Which part of each GPU's time every tenant has computed in the last minutes, step by step. For the node's page;
// lost with the agent. A value; one thread at a time. Time is an argument.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "agent/metrics/ledger.h"

namespace gpuloom {

class ShareHistory {
 public:
  // Executors report once a second.
  static constexpr Clock::Duration kStep = std::chrono::seconds(5);
  static constexpr size_t kSteps = 60;

  // After each look; a step ends when it has lasted.
  void Follow(const Ledger& ledger, Clock::Time now);

  // From 0 to 1 each, the oldest first, one for each step so far; empty: nothing in any of them.
  std::vector<double> Of(const TenantName& tenant) const;
  std::vector<double> OfGpu(const std::string& uuid) const;
  size_t steps() const { return steps_.size(); }

 private:
  // Without those that have computed nothing.
  struct Step {
    std::map<TenantName, double> tenants;
    std::map<std::string, double> gpus;
  };

  std::deque<Step> steps_;
  Clock::Time began_;  // of the step that goes on
  // What was charged when it began.
  std::map<TenantName, uint64_t> tenants_ns_;
  std::map<std::string, uint64_t> gpus_ns_;
};

}  // namespace gpuloom
