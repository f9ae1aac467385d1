// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/domain_book.h"

#include <algorithm>

namespace gpuloom::scheduler {

std::chrono::steady_clock::duration StartDelay(int failures) {
  if (failures == 0) return std::chrono::seconds(0);
  return std::chrono::seconds(std::min(30, 1 << std::min(failures - 1, 5)));
}

const DomainHistory* DomainBook::Find(const std::string& domain) const {
  const auto it = domains_.find(domain);
  return it == domains_.end() ? nullptr : &it->second;
}

std::optional<DomainBook::Time> DomainBook::Forget(const std::set<std::string_view>& present,
                                                   Time now) {
  std::optional<Time> next;
  for (auto it = domains_.begin(); it != domains_.end();) {
    // Advanced first: the entry may be erased.
    const auto here = it++;
    DomainHistory& history = here->second;
    if (present.contains(here->first)) {
      history.unused_since.reset();
      continue;
    }
    if (!history.unused_since) {
      history.unused_since = now;
      // Its back-off and its log budget stay, or deleting and recreating a namespace would clear
      // them.
      history.next_spare = {};  // whoever comes next comes for the first time
    }
    const Time end = *history.unused_since + lingering_;
    if (end <= now) {
      domains_.erase(here);
    } else {
      next = std::min(end, next.value_or(end));
    }
  }
  return next;
}

}  // namespace gpuloom::scheduler
