// SPDX-License-Identifier: Apache-2.0
// What the sessions of one allocation hold together of what an executor has only once. A tenant may open sessions
// without end, so what is shared out among sessions alone is shared out among nobody.
//
// Sessions of one allocation are those with the same label ("namespace/pod/container"), which the scheduler says.
// Held by the sessions and by what outlives them. Ring thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/node/line_budget.h"

namespace gpuloom::executor {

struct Tenant {
  explicit Tenant(std::string of) : label(std::move(of)) {}
  Tenant(const Tenant&) = delete;
  Tenant& operator=(const Tenant&) = delete;

  const std::string label;
  uint64_t staged_bytes = 0;  // Staging's
  uint32_t link_threads = 0;  // also those that its ended sessions have left behind
  LineBudget lines;
};
using TenantRef = std::shared_ptr<Tenant>;

class Tenants {
 public:
  TenantRef Find(const std::string& label) {
    // As many as there are sessions, at the most.
    std::erase_if(known_, [](const auto& one) { return one.second.expired(); });
    std::weak_ptr<Tenant>& known = known_[label];
    TenantRef tenant = known.lock();
    if (tenant == nullptr) known = tenant = std::make_shared<Tenant>(label);
    return tenant;
  }

 private:
  std::map<std::string, std::weak_ptr<Tenant>> known_;
};

}  // namespace gpuloom::executor
