// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/shares.h"

#include <set>

#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {
namespace {

// Returns true if its executor knows of it and can still be reached.
bool IsAdded(const Session& session) {
  return session.state != Session::State::kWaiting && session.executor->peer != nullptr;
}

}  // namespace

// Executors tell namespaces apart by these numbers.
std::shared_ptr<const uint64_t> Shares::NumberOfNamespace(const std::string& name) {
  if (namespaces_.size() >= 2 * Registry::kMaxAllocations) {
    std::erase_if(namespaces_, [](const auto& known) { return known.second.use_count() == 1; });
  }
  std::shared_ptr<const uint64_t>& number = namespaces_[name];
  if (number == nullptr) number = std::make_shared<const uint64_t>(registry_.NextId());
  return number;
}

void Shares::Send(const Allocation& allocation) {
  std::set<Executor*> executors;
  for (const auto& [id, session] : registry_.sessions) {
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

bool Shares::Apply(Controller*, const control::SuspendAllocation& message, std::string* error) {
  const std::string name = control::TextOf(message.name);
  const auto it = registry_.allocations.find(name);
  if (it == registry_.allocations.end()) {
    *error = "allocation " + name + " is not known";
    return false;
  }
  Allocation& allocation = *it->second.allocation;
  const bool suspend = message.suspend != 0;
  if (allocation.suspended == suspend) return true;
  allocation.suspended = suspend;
  LogInfo(allocation.Label() + ": allocation " + name + (suspend ? " suspended" : " resumed"));
  for (const auto& [id, session] : registry_.sessions) {
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

void Shares::On(Executor* executor, const control::SessionHeld& message, control::Incoming& in) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  // Otherwise it answers a hold that has been taken back meanwhile.
  if (session == nullptr || in.header.request != session->hold_request) return;
  session->held = session->allocation->suspended;
}

// An allocation that has no session there is as unknown as none.
void Shares::On(Executor* executor, const control::PartitionPending& message, control::Incoming&) {
  for (const uint64_t id : executor->sessions) {
    const Session* session = registry_.FindSession(id, *executor);
    if (session == nullptr || session->allocation->id != message.allocation_id) continue;
    Allocation& allocation = *session->allocation;
    std::string why = control::TextOf(message.why);
    if (why == allocation.pending_partition) return;
    if (!why.empty()) ++allocation.pending_partitions;
    allocation.pending_partition = std::move(why);
    return;
  }
}

}  // namespace gpuloom::scheduler
