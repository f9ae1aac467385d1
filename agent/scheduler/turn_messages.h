// SPDX-License-Identifier: Apache-2.0
// What executors say about turns at the device (turns.h), and the end of one that stays there without a turn. What they
// say is untrusted: it can only divide their own domain's time. A part of the scheduler; its thread only. `turns`
// outlives it.
#pragma once

#include <cstdint>

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class Turns;

class TurnMessages : public Part {
 public:
  TurnMessages(SchedulerPort* port, Turns* turns) : Part(port), turns_(turns) {}

  void On(Executor* executor, const control::AllocationWants& message, control::Incoming& in);
  void On(Executor* executor, const control::TurnUsage& message, control::Incoming& in);
  void On(Executor* executor, const control::TurnDrained& message, control::Incoming& in);
  // For Turns::OnOverrun.
  void EndForOverrun(Executor* executor, uint64_t overran_ns);

 private:
  Turns* const turns_;
};

}  // namespace gpuloom::scheduler
