// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/unsupported_log.h"

#include <spdlog/spdlog.h>

#include <chrono>

#include "agent/node/log.h"

namespace gpuloom {
namespace {

// The same clock as TakeLogLine's.
uint64_t MonotonicNs() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace

void UnsupportedLog::Look(const std::string& gpu_uuid, const std::vector<UnsupportedCalls>& now) {
  // A new table, so that allocations that are gone leave none behind.
  std::map<std::string, std::set<std::string>> said;
  for (const UnsupportedCalls& calls : now) {
    std::set<std::string>& names = said[calls.allocation];
    names = std::move(said_[gpu_uuid][calls.allocation]);
    for (const std::string& name : calls.names) {
      // Known from now on, even if the budget leaves its line out: it is not tried again at every
      // look.
      if (!names.insert(name).second) continue;
      LineBudget& budget = budgets_.Of(calls.pod_namespace, MonotonicNs());
      if (!TakeLogLine(&budget, "gpuloom-agent", LogLevel::kWarning)) {
        continue;
      }
      spdlog::warn("tenant: {}/{} ({}) asked CUDA for {}, which is not supported",
                   calls.pod_namespace, calls.pod, calls.container, name);
    }
  }
  said_[gpu_uuid] = std::move(said);
}

}  // namespace gpuloom
