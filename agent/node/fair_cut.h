// SPDX-License-Identifier: Apache-2.0
// Shortens a list of what namespaces have caused, the latest first: each time the oldest of the namespace that has most goes, of
// equal ones the one whose oldest is oldest. So however much one namespace causes, the others' latest ones stay.
// Pure. Entries have `pod_namespace`; an empty one, which is not known, counts as a namespace.
#pragma once

#include <cstddef>
#include <iterator>
#include <map>
#include <string>

namespace gpuloom {

template <typename List>
void CutFairly(List* latest_first, size_t most) {
  while (latest_first->size() > most) {
    std::map<std::string, size_t> counts;
    size_t largest = 0;
    for (const auto& entry : *latest_first) {
      const size_t count = ++counts[entry.pod_namespace];
      if (count > largest) largest = count;
    }
    auto oldest = std::prev(latest_first->end());
    while (counts[oldest->pod_namespace] != largest) --oldest;
    latest_first->erase(oldest);
  }
}

}  // namespace gpuloom
