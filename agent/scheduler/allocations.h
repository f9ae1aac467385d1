// SPDX-License-Identifier: Apache-2.0
// Allocations (allocation.h), as agents and commands add, bind and remove them, and their doors. A part of the
// scheduler; its thread only. The parts that it calls outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

struct Controller;
class MemoryGrants;
class OwnTraces;
class Sessions;
class Shares;
class TrustDomains;
class Turns;

class Allocations : public Part {
 public:
  // Called for each process that connects to an allocation's door.
  using OnConnection = std::function<void(const AllocationPtr&, TenantConnection)>;
  // The parts that are called.
  struct Called {
    Turns* turns;
    TrustDomains* trust_domains;
    OwnTraces* own_traces;
    MemoryGrants* memory_grants;
    Shares* shares;
    Sessions* sessions;
  };

  Allocations(SchedulerPort* port, const Called& called, OnConnection on_connection)
      : Part(port), called_(called), on_connection_(std::move(on_connection)) {}

  // Each applies one request. Returns false with the reason.
  [[nodiscard]] bool Apply(Controller* controller, const control::AddAllocation& message,
                           std::string* error);
  [[nodiscard]] bool Apply(Controller* controller, const control::BindAllocation& message,
                           std::string* error);
  [[nodiscard]] bool Apply(Controller* controller, const control::PrepareExecutor& message,
                           std::string* error);
  [[nodiscard]] bool Apply(Controller* controller, const control::RemoveAllocation& message,
                           std::string* error);
  // Removes the allocations that were to live as long as the connection (`gpuloom run`).
  void RemoveOf(uint64_t controller_id);

 private:
  // An agent that has restarted adds again the allocations that it knows.
  [[nodiscard]] bool AddAgain(const Registry::DoorAndAllocation& known,
                              const Controller& controller, const control::AddAllocation& message,
                              std::string* error);
  void Remove(const std::string& name);

  const Called called_;
  const OnConnection on_connection_;
};

}  // namespace gpuloom::scheduler
