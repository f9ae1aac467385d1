// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/unsupported_log.h"

#include <spdlog/spdlog.h>

#include "agent/node/log.h"

namespace gpuloom {

void UnsupportedLog::Look(const std::string& gpu_uuid, const std::vector<UnsupportedCalls>& now) {
  std::map<std::string, std::set<std::string>> said;
  for (const UnsupportedCalls& calls : now) {
    std::set<std::string>& names = said[calls.allocation];
    names = std::move(said_[gpu_uuid][calls.allocation]);
    for (const std::string& name : calls.names) {
      if (!names.insert(name).second) continue;
      if (!TakeLogLine(&budgets_[calls.pod_namespace], "gpuloom-agent", LogLevel::kWarning))
        continue;
      spdlog::warn("tenant: {}/{} ({}) asked CUDA for {}, which is not supported",
                   calls.pod_namespace, calls.pod, calls.container, name);
    }
  }
  said_[gpu_uuid] = std::move(said);
}

}  // namespace gpuloom
