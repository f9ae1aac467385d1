// SPDX-License-Identifier: Apache-2.0
// A session that is held: by the operator, for a quiet moment, or while it moves to other multiprocessors.
#include <algorithm>

#include "agent/executor/device/device.h"
#include "agent/executor/device/partitions.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/session_parts.h"
#include "agent/executor/session/time_sharing.h"

namespace gpuloom::executor {

bool Session::SetHeld(bool held) {
  const bool was_held = held_;
  quiet_held_ = held;
  UpdateHeld();
  return was_held && !held_;
}

void Session::UpdateHeld() {
  const bool was_held = held_;
  held_ = quiet_held_ || moving_ ||
          std::any_of(holds_.begin(), holds_.end(),
                      [](const SchedulerHold& hold) { return hold.holds; });
  if (was_held == held_) return;
  // It does not ask again before the hold ends, perhaps by an operator's hand.
  if (held_) parts_->submission.LeavePrintQueue();
  NoteHeld(services_.sharing->now_ns());
}

void Session::Hold(control::HoldReason reason, bool hold, uint32_t request) {
  holds_[static_cast<size_t>(reason)] = {hold, false, request};
  UpdateHeld();
}

arbiter::SmGroups Session::Multiprocessors() const {
  return partition_ == nullptr ? ~arbiter::SmGroups{0} : partition_->groups;
}

// Moves the session to the multiprocessors that the policy now gives it: holds its submissions
// until nothing of it is at the device and the partition is made. Streams and graphs then see in
// their next use that the context is another one (MakeStream, Follows).
void Session::FollowPartition() {
  if (state_ != State::kServing) return;
  const Partitions& partitions = *services_.partitions;
  if (partitions_known_ == partitions.changes() && !moving_) return;
  partitions_known_ = partitions.changes();
  const Partition* next = partitions.Of(order_.allocation_id);
  const bool fails = next != nullptr && next->HasFailed();
  // A limit is never exceeded for want of memory: a session that cannot get its first partition
  // ends.
  if (fails && !placed_) {
    PublishFault(CUDA_ERROR_OUT_OF_MEMORY,
                 next->state == Partition::State::kTooMany
                     ? "gpuloom: this program's trust domain has had as many different sets of "
                       "multiprocessors as there may be, and the policy's smPercent gives this "
                       "program another one; once all programs of the domain have ended it can "
                       "begin\n"
                     : "gpuloom: the device has no room for the multiprocessors that the policy's "
                       "smPercent gives to this program; the executor's log says more\n");
    return End(wire::Fatal::kNone, now_ns_);
  }
  // After a failure it stays where it is.
  moving_ = !fails && (next != partition_ || !placed_);
  // A partition that is still being made is one more reason to stay held.
  const bool is_there = next == nullptr || next->state == Partition::State::kMade;
  if (moving_ && is_there && !AtDevice()) {
    partition_ = next;
    placed_ = true;
    moving_ = false;
  }
  UpdateHeld();
}

uint64_t Session::HeldNs(uint64_t now_ns) const {
  return held_ns_ + (waits_held_ ? now_ns - std::min(now_ns, held_noted_ns_) : 0);
}

// Call when the session becomes held or ceases to be, and in each round meanwhile: its wait begins
// with its first waiting command.
void Session::NoteHeld(uint64_t now_ns) {
  held_ns_ = HeldNs(now_ns);
  held_noted_ns_ = now_ns;
  waits_held_ = held_ && HasWaiting();
}

// Called after reading and submitting in a round, so what is at the device is known.
void Session::SendHeld() {
  for (size_t i = 0; i < holds_.size(); ++i) {
    SchedulerHold& hold = holds_[i];
    if (!hold.holds || hold.acknowledged || OccupiesDevice()) continue;
    hold.acknowledged = true;
    services_.scheduler->Send(control::SessionHeld{id(), static_cast<uint32_t>(i), 0},
                              hold.request);
  }
}

}  // namespace gpuloom::executor
