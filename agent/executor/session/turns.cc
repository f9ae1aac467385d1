// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/turns.h"

#include <algorithm>
#include <utility>

#include "agent/arbiter/terms.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/time_sharing.h"

namespace gpuloom::executor {

// A turn that was to drain continues instead, and no TurnDrained is sent.
void Turns::Give(const control::GiveTurn& order) {
  if (!sharing_->enforces()) return;
  shares_device_ = true;
  has_turn_ = true;
  drains_.reset();
  sharing_->SetTurn(arbiter::PriorityOf(order.lowest), order.in_flight_ns);
  if (!sharing_->turn_is_endless()) others_ns_ = sharing_->now_ns();
}

void Turns::End(uint32_t request) {
  // Without sharing, there is nothing to wait for.
  if (!sharing_->enforces()) return scheduler_->Send(control::TurnDrained{}, request);
  shares_device_ = true;
  has_turn_ = false;
  drains_ = request;
  sharing_->EndTurn();
  others_ns_ = sharing_->now_ns();
}

// Adds up over the sessions of an allocation. `allocations_` is by the arbiter's small numbers:
// when one is given to another allocation, what the scheduler has not heard of the former is said
// first.
void Turns::Note(Session* session, uint64_t now_ns) {
  Share& share = session->share();
  const auto place = static_cast<size_t>(share.allocation);
  if (place >= allocations_.size()) allocations_.resize(place + 1);
  Allocation& its = allocations_[place];
  if (its.id != share.allocation_id) {
    if (its.wants) scheduler_->Send(control::AllocationWants{its.id, 0, 0});
    if (its.used_ns != 0) left_.push_back({its.id, its.used_ns});
    its = Allocation{};
    its.id = share.allocation_id;
  }
  const uint64_t used_ns = share.used_ns[static_cast<size_t>(arbiter::Engine::kCompute)];
  its.used_ns += used_ns - std::exchange(share.noted_ns, used_ns);
  // Short kernels are done before anybody looks.
  const bool computed =
      std::exchange(share.noted_kernels, share.submitted_kernels) != share.submitted_kernels;
  const bool wants = sharing_->WantsTurn(*session);
  its.working |= wants;
  if (wants || computed) {
    its.worked_ns = its.computed_ns = now_ns;
  } else if (!session->held()) {
    // A program that has just sent something will most likely send a kernel, even if all it sent is done: but not one that
    // copies all the time.
    const uint64_t sent_ns = std::min(session->last_read_ns(), its.computed_ns + kIdleNs);
    its.worked_ns = std::max(its.worked_ns, sent_ns);
  }
}

// Tells the scheduler of changes only: which allocation wants the device, or has stopped wanting it
// after a pause that is longer than its usual ones.
void Turns::SendWants(uint64_t now_ns) {
  const bool is_alone = sharing_->turn_is_endless() && now_ns - others_ns_ >= kOthersLingerNs;
  waits_ = false;
  wake_at_ns_ = UINT64_MAX;
  for (Allocation& its : allocations_) {
    if (its.id == 0) continue;
    if (its.working && !its.was_working) its.patience.Paused(now_ns - its.had_worked_ns);
    its.was_working = its.working;
    its.had_worked_ns = its.worked_ns;
    const uint64_t idle_ns = is_alone ? kLongIdleNs : its.patience.ns();
    const bool wants = its.working || now_ns - its.worked_ns < idle_ns;
    if (wants != its.wants) {
      its.wants = wants;
      scheduler_->Send(control::AllocationWants{its.id, wants ? 1u : 0u, 0});
    }
    if (wants && !its.working) wake_at_ns_ = std::min(wake_at_ns_, its.worked_ns + idle_ns);
    // The loop then looks at the scheduler's socket more often.
    waits_ |= its.working && !has_turn_;
  }
}

// Usage goes ahead of TurnDrained, by which the scheduler divides what the turn has cost.
void Turns::Look(Sessions sessions, uint64_t now_ns) {
  if (!shares_device_) return;
  for (Allocation& its : allocations_) its.working = false;
  for (const auto& session : sessions) Note(session.get(), now_ns);
  SendWants(now_ns);
  if (now_ns - last_usage_ns_ >= kUsagePeriodNs && MustSendUsage()) {
    last_usage_ns_ = now_ns;
    SendUsage();
  }
  if (!drains_ || std::any_of(sessions.begin(), sessions.end(),
                              [](const auto& session) { return session->HasKernelsAtDevice(); })) {
    return;
  }
  SendUsage();
  scheduler_->Send(control::TurnDrained{}, *std::exchange(drains_, {}));
}

// While others wait the scheduler decides by it whether this turn goes on: what it knows of the last one may be the
// opposite. Where only one allocation wants the device there is nothing to divide.
bool Turns::MustSendUsage() const {
  if (!has_turn_ || sharing_->turn_is_endless()) return false;
  return std::count_if(allocations_.begin(), allocations_.end(),
                       [](const Allocation& its) { return its.id != 0 && its.wants; }) > 1;
}

// As many messages as it takes; `more` tells the scheduler that the sum is not complete yet.
void Turns::SendUsage() {
  if (!shares_device_) return;
  for (Allocation& its : allocations_) {
    if (its.used_ns != 0) left_.push_back({its.id, std::exchange(its.used_ns, 0)});
  }
  for (size_t told = 0; told != left_.size();) {
    control::TurnUsage usage = {};
    usage.count =
        static_cast<uint32_t>(std::min<size_t>(left_.size() - told, control::kUsesAtOnce));
    std::copy_n(left_.begin() + static_cast<ptrdiff_t>(told), usage.count, usage.uses);
    told += usage.count;
    usage.more = told != left_.size();
    scheduler_->Send(usage);
  }
  left_.clear();
}

}  // namespace gpuloom::executor
