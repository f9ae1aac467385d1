// SPDX-License-Identifier: Apache-2.0
// What allocations may have of the device's time: executors are told the policy's terms and who is suspended, and
// report whose work is held, and whose terms cannot be kept now. A part of the scheduler; its thread only. The terms
// are the allocations', which the registry owns.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

struct Controller;

class Shares : public Part {
 public:
  explicit Shares(SchedulerPort* port) : Part(port) {}

  [[nodiscard]] bool Apply(Controller* controller, const control::SuspendAllocation& message,
                           std::string* error);
  void On(Executor* executor, const control::SessionHeld& message, control::Incoming& in);
  void On(Executor* executor, const control::PartitionPending& message, control::Incoming& in);

  // Returns the same number for equal names, also when nobody has held it for a while: what a namespace owes is known by
  // its number. With very many names those that nobody holds get another one. A number is never reused.
  std::shared_ptr<const uint64_t> NumberOfNamespace(const std::string& name);
  // Sends the allocation's terms to the executors of its sessions.
  void Send(const Allocation& allocation);

 private:
  uint32_t last_hold_request_ = 0;
  std::map<std::string, std::shared_ptr<const uint64_t>> namespaces_;
};

}  // namespace gpuloom::scheduler
