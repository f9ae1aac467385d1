// SPDX-License-Identifier: Apache-2.0
// One LineBudget for each namespace whose tenants may cause log lines. Bounded by kMost: at that number, budgets that
// are full again are forgotten, because they are equal to new ones; if none is, new names share one budget. So
// endless new names do not silence a namespace that has a budget.
//
// A value; one thread at a time. Time is as for LineBudget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "agent/node/line_budget.h"

namespace gpuloom {

class LineBudgets {
 public:
  // Many more namespaces than a node runs pods of at a time.
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
