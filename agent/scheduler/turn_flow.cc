// SPDX-License-Identifier: Apache-2.0
// What executors say about turns at the device (turns.h).
#include "agent/scheduler/scheduler.h"

namespace gpuloom::scheduler {

void Scheduler::On(Executor* executor, const control::AllocationWants& message,
                   control::Incoming&) {
  if (message.wants > 1) {
    LoseExecutor(executor, End::kKill, "sent a malformed AllocationWants");
    return;
  }
  turns_.SetWants(*executor, message.allocation_id, message.wants != 0);
}

void Scheduler::On(Executor* executor, const control::TurnUsage& message, control::Incoming&) {
  if (!Turns::IsValid(message)) {
    LoseExecutor(executor, End::kKill, "sent a malformed TurnUsage");
    return;
  }
  turns_.AddUsage(*executor, message);
}

void Scheduler::On(Executor* executor, const control::TurnDrained&, control::Incoming& in) {
  turns_.Drained(*executor, in.header.request);
}

}  // namespace gpuloom::scheduler
