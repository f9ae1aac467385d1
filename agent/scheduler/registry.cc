// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/registry.h"

#include <algorithm>

namespace gpuloom::scheduler {

Session* Registry::FindSession(uint64_t session_id_untrusted, const Executor& executor) const {
  const auto it = sessions.find(session_id_untrusted);
  if (it == sessions.end() || it->second->executor != &executor) return nullptr;
  return it->second.get();
}

Session* Registry::FindServed(uint64_t session_id_untrusted, const Executor& executor) const {
  Session* session = FindSession(session_id_untrusted, executor);
  return session != nullptr && (session->state == Session::State::kLive ||
                                session->state == Session::State::kAdding)
             ? session
             : nullptr;
}

Executor* Registry::FindExecutor(uint64_t executor_id) const {
  const auto it = executors.find(executor_id);
  return it == executors.end() ? nullptr : it->second.get();
}

Executor* Registry::FindConnected(uint64_t executor_id) const {
  Executor* executor = FindExecutor(executor_id);
  return executor == nullptr || executor->peer == nullptr ? nullptr : executor;
}

bool Registry::HasAllocations(const std::string& domain) const {
  return std::any_of(allocations.begin(), allocations.end(), [&](const auto& entry) {
    return entry.second.allocation->bound && entry.second.allocation->trust_domain == domain;
  });
}

}  // namespace gpuloom::scheduler
