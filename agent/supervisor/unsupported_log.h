// SPDX-License-Identifier: Apache-2.0
// Says in the agent's log what tenants have asked of CUDA that is not supported: each name once for
// an allocation, and of each namespace no more lines than its budget allows. One thread.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agent/node/line_budgets.h"
#include "agent/supervisor/scheduler_client.h"

namespace gpuloom {

class UnsupportedLog {
 public:
  // To be called now and then for each GPU, with what its scheduler knows. Allocations that are not
  // among it any more are forgotten.
  void Look(const std::string& gpu_uuid, const std::vector<UnsupportedCalls>& now);

 private:
  std::map<std::string, std::map<std::string, std::set<std::string>>> said_;  // GPU, allocation
  LineBudgets budgets_;                                                       // by namespace
};

}  // namespace gpuloom
