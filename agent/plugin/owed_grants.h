// SPDX-License-Identifier: Apache-2.0
// What allocations lack of what the policy grants them, and why. In memory only: an agent that starts learns it anew when
// it grants (Allocator::Restore, Regrant). Safe from any thread; its lock is a leaf. Nothing fails.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "proto/sync/mutex.h"

namespace gpuloom {

class OwedGrants {
 public:
  // Why an allocation does not have what the policy grants it.
  enum class Reason { kMemoryIsNotLeft, kIsNotRecorded, kIsRefused };

  // `line` says so; empty: not for this reason any more.
  void Owe(const std::string& name, Reason reason, const std::string& line)
      GPULOOM_EXCLUDES(mutex_);
  bool IsOwed(const std::string& name, Reason reason) const GPULOOM_EXCLUDES(mutex_);
  // Nothing is owed to allocations that are over. `is_there` is not called under the lock.
  void ForgetAllBut(const std::function<bool(const std::string& name)>& is_there)
      GPULOOM_EXCLUDES(mutex_);

  bool any() const GPULOOM_EXCLUDES(mutex_);
  // The lines of all reasons but memory that is not left.
  std::vector<std::string> Failures() const GPULOOM_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  std::map<std::pair<std::string, Reason>, std::string> lines_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom
