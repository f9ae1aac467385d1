// SPDX-License-Identifier: Apache-2.0
// What the sessions of one allocation use together of an executor's scarce resources. A tenant may
// open any number of sessions, so a limit per session alone would not limit anything.
//
// Sessions belong to one allocation if the scheduler gives them the same label
// ("namespace/pod/container"). Held by the sessions and by what outlives them. Ring thread only.
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
  uint64_t staged_bytes = 0;     // Staging's
  uint32_t link_threads = 0;     // including those left behind by its ended sessions
  uint32_t streams = 0;          // CUDA's
  uint32_t hardware_queues = 0;  // held by its streams
  uint32_t timing_streams = 0;   // with events with timing at CUDA
  uint32_t events = 0;           // recorded ones, and those that wait to be

  // What a program has that does one thing at a time. For it the last streams and events are kept that can be had without
  // waiting for the device (device.h).
  static constexpr uint32_t kFewStreams = 4;
  static constexpr uint32_t kFewEvents = 32;
  LineBudget lines;
};
using TenantRef = std::shared_ptr<Tenant>;

class Tenants {
 public:
  TenantRef Find(const std::string& label) {
    // At most as many as there are sessions.
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
