// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/trust_domains.h"

#include <set>
#include <string_view>

namespace gpuloom::scheduler {

void TrustDomains::Forget() {
  // A session's domain is its executor's, so that the executors suffice.
  std::set<std::string_view> present;
  for (const auto& [name, entry] : registry_.allocations) {
    if (entry.allocation->bound) present.insert(entry.allocation->trust_domain);
  }
  for (const auto& [id, executor] : registry_.executors) present.insert(executor->domain);
  const auto now = EventLoop::Clock::now();
  timer_.Cancel();
  if (const auto next = book_.Forget(present, now)) {
    timer_ = loop_->After(*next - now, [this] { Forget(); });
  }
}

}  // namespace gpuloom::scheduler
