// SPDX-License-Identifier: Apache-2.0
// Logs which unsupported CUDA features tenants have asked for: each name once per allocation, and for each namespace no
// more lines than its budget allows. Owned by Upkeep, whose thread uses it; keeps copies of names. Nothing fails.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agent/node/line_budgets.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

class UnsupportedLog {
 public:
  // Call it from time to time for each GPU with what its scheduler knows. Forgets allocations that are not in it.
  void Look(const std::string& gpu_uuid, const std::vector<UnsupportedCalls>& now);

 private:
  std::map<std::string, std::map<std::string, std::set<std::string>>> said_;  // GPU, allocation
  LineBudgets budgets_;                                                       // by namespace
};

}  // namespace gpuloom
