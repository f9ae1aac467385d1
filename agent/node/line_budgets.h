// SPDX-License-Identifier: Apache-2.0
// A LineBudget for each of those that may cause lines, by name: namespaces. Bounded, however many there are: a budget
// that is full again is as a new one, and forgotten once there are kMost; those for whom there is none all the same
// share one. So whoever makes names without end silences nobody who has been heard.
//
// Pure; one thread at a time. Time is as for LineBudget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "agent/node/line_budget.h"

namespace gpuloom {

class LineBudgets {
 public:
  // Many more than a node has at a time.
  static constexpr size_t kMost = 1000;

  // Valid until the next call.
  LineBudget& Of(const std::string& whose, uint64_t now_ns) {
    if (const auto known = budgets_.find(whose); known != budgets_.end()) return known->second;
    if (budgets_.size() >= kMost) {
      std::erase_if(budgets_, [&](const auto& entry) { return entry.second.IsFull(now_ns); });
    }
    return budgets_.size() < kMost ? budgets_[whose] : shared_;
  }

  size_t size() const { return budgets_.size(); }

 private:
  std::map<std::string, LineBudget> budgets_;
  LineBudget shared_;
};

}  // namespace gpuloom
