// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/turn_messages.h"

#include <chrono>
#include <string>

#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/turns.h"

namespace gpuloom::scheduler {

void TurnMessages::On(Executor* executor, const control::AllocationWants& message,
                      control::Incoming&) {
  if (message.wants > 1) {
    port_->LoseExecutor(executor, End::kKill, "sent a malformed AllocationWants");
    return;
  }
  turns_->SetWants(*executor, message.allocation_id, message.wants != 0);
}

void TurnMessages::On(Executor* executor, const control::TurnUsage& message, control::Incoming&) {
  if (!Turns::IsValid(message)) {
    port_->LoseExecutor(executor, End::kKill, "sent a malformed TurnUsage");
    return;
  }
  turns_->AddUsage(*executor, message);
}

void TurnMessages::On(Executor* executor, const control::TurnDrained&, control::Incoming& in) {
  turns_->Drained(*executor, in.header.request);
}

// From here nobody can tell whether a tenant's kernel ran on or the executor went on submitting, so nobody is named.
void TurnMessages::EndForOverrun(Executor* executor, uint64_t overran_ns) {
  if (executor->ends_for_kernel) return;  // it has been told to end
  const std::string seconds = std::to_string(overran_ns / 1'000'000'000);
  const std::string reason = "it was still at the device after its turn had ended, and took " +
                             seconds + " s of it beside other domains";
  const std::string for_tenants = "work of trust domain " + executor->domain + " took " + seconds +
                                  " s of the GPU's time that was others' turn";
  // Another executor's message, or this one's, may be the reason for this call.
  const uint64_t id = executor->id;
  executor->deadline = loop_->After(std::chrono::milliseconds(0), [this, id, reason, for_tenants] {
    port_->LoseExecutor(registry_.executors.at(id).get(), End::kAbort, reason, for_tenants);
  });
}

}  // namespace gpuloom::scheduler
