// SPDX-License-Identifier: Apache-2.0
#include "agent/plugin/owed_grants.h"

#include <set>

namespace gpuloom {

void OwedGrants::Owe(const std::string& name, Reason reason, const std::string& line) {
  const MutexLock lock(mutex_);
  if (line.empty()) {
    lines_.erase({name, reason});
  } else {
    lines_[{name, reason}] = line;
  }
}

bool OwedGrants::IsOwed(const std::string& name, Reason reason) const {
  const MutexLock lock(mutex_);
  return lines_.contains({name, reason});
}

void OwedGrants::ForgetAllBut(const std::function<bool(const std::string& name)>& is_there) {
  std::set<std::string> names;
  {
    const MutexLock lock(mutex_);
    for (const auto& [key, line] : lines_) names.insert(key.first);
  }
  std::erase_if(names, is_there);
  const MutexLock lock(mutex_);
  std::erase_if(lines_, [&](const auto& entry) { return names.contains(entry.first.first); });
}

bool OwedGrants::any() const {
  const MutexLock lock(mutex_);
  return !lines_.empty();
}

std::vector<std::string> OwedGrants::Failures() const {
  std::vector<std::string> failures;
  const MutexLock lock(mutex_);
  for (const auto& [key, line] : lines_) {
    if (key.second != Reason::kMemoryIsNotLeft) failures.push_back(line);
  }
  return failures;
}

}  // namespace gpuloom
