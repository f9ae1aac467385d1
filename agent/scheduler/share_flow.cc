// SPDX-License-Identifier: Apache-2.0
// What allocations may have of the device's time, and have had: executors are told the policy's terms and who is
// suspended, and report what their sessions have used.
#include <algorithm>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "agent/scheduler/time_usage.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {
namespace {

// Returns true if its executor knows of it and can still be reached.
bool IsAdded(const Session& session) {
  return session.state != Session::State::kWaiting && session.executor->peer != nullptr;
}

}  // namespace

// Executors tell namespaces apart by these numbers. Kept alive by the allocations that have them.
std::shared_ptr<const uint64_t> Scheduler::NumberOfNamespace(const std::string& name) {
  std::erase_if(namespaces_, [](const auto& known) { return known.second.expired(); });
  std::weak_ptr<const uint64_t>& known = namespaces_[name];
  std::shared_ptr<const uint64_t> number = known.lock();
  if (number == nullptr) known = number = std::make_shared<const uint64_t>(++last_id_);
  return number;
}

void Scheduler::TellShares(const Allocation& allocation) {
  std::set<Executor*> executors;
  for (const auto& [id, session] : sessions_) {
    if (session->allocation.get() == &allocation && IsAdded(*session)) {
      executors.insert(session->executor);
    }
  }
  for (Executor* executor : executors) {
    executor->peer->Send(0, control::SetShares{allocation.id, allocation.slots, allocation.shares,
                                               allocation.partition, allocation.kernels,
                                               allocation.rescue_after_ms, 0});
  }
}

bool Scheduler::Apply(uint64_t, const control::SuspendAllocation& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = allocations_.find(name);
  if (it == allocations_.end()) {
    *error = "allocation " + name + " is not known";
    return false;
  }
  Allocation& allocation = *it->second.allocation;
  const bool suspend = message.suspend != 0;
  if (allocation.suspended == suspend) return true;
  allocation.suspended = suspend;
  LogInfo(allocation.Label() + ": allocation " + name + (suspend ? " suspended" : " resumed"));
  for (const auto& [id, session] : sessions_) {
    // A session that its executor does not know of yet is added held, if need be (AddToExecutor).
    if (session->allocation.get() != &allocation || !IsAdded(*session)) continue;
    session->held = false;
    session->hold_request = suspend ? ++last_hold_request_ : 0;
    session->executor->peer->Send(
        session->hold_request,
        control::HoldSession{id, static_cast<uint32_t>(control::HoldReason::kOperator),
                             message.suspend});
  }
  return true;
}

void Scheduler::On(Executor* executor, const control::SessionHeld& message, control::Incoming& in) {
  Session* session = FindSession(message.session_id, *executor);
  // Otherwise it answers a hold that has been taken back meanwhile.
  if (session == nullptr || in.header.request != session->hold_request) return;
  session->held = session->allocation->suspended;
}

void Scheduler::On(Executor* executor, const control::SessionCounters& message,
                   control::Incoming&) {
  Session* session = FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  Raise(session, message.kernels_launched, message.time, message.work);
}

void Scheduler::AddSessions(const Allocation& allocation, control::AllocationState* state) const {
  state->memory_waiting = static_cast<uint32_t>(waiting_.CountOf(&allocation));
  state->kernels_launched = allocation.kernels_of_ended_sessions;
  state->time = allocation.time_of_ended_sessions;
  state->work = allocation.work_of_ended_sessions;
  for (const auto& [id, session] : sessions_) {
    if (session->allocation.get() != &allocation) continue;
    AddTo(session->kernels_launched, &state->kernels_launched);
    AddTo(session->time, &state->time);
    AddTo(session->work, &state->work);
    // A session that its executor does not know of yet has nothing at the device.
    const bool is_held = session->held || session->state == Session::State::kWaiting;
    state->held_sessions += allocation.suspended && is_held;
  }
}

}  // namespace gpuloom::scheduler
