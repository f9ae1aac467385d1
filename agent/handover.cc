// SPDX-License-Identifier: Apache-2.0
#include "agent/handover.h"

#include <spdlog/spdlog.h>

#include "agent/node/agent_lock.h"
#include "agent/state_lock.h"

namespace gpuloom {

// Every transition takes the lock of its new role before it releases the old one's: if an agent dies at any point, the
// locks still show the others which agents exist.
absl::StatusOr<Handover::Role> Handover::Look() {
  switch (role_) {
    case Role::kWaiting: {
      if (!next_.valid()) {
        // This is what the agent in charge sees. Only one agent can wait so.
        const absl::StatusOr<bool> is_next = Take(kNextLockName, &next_);
        if (!is_next.ok()) return is_next.status();
      }
      // An agent that waited longer comes first.
      const absl::StatusOr<bool> is_mine = next_.valid() ? Take(kAgentLockName, &charge_) : false;
      if (!is_mine.ok()) return is_mine.status();
      if (*is_mine) {
        // Released after agent.lock is taken: otherwise the agent that leaves could see neither lock held, and take
        // charge again.
        next_.Reset();
        role_ = Role::kInCharge;
      } else if (!logged_wait_) {
        logged_wait_ = true;
        spdlog::info("agent: another one is in charge of {}; waiting until it hands over or ends",
                     directory_);
      }
      break;
    }
    case Role::kInCharge: {
      // Nobody waits, or one who tried to just now was kept out by this probe and tries again.
      if (!IsStateLocked(directory_, kNextLockName)) break;
      // A predecessor that is still leaving must end first: two agents can answer at a time, but
      // not three.
      const absl::StatusOr<bool> may_leave = Take(kLeavingLockName, &leaving_);
      // No error ends the agent in charge: it stays so and tries again.
      if (!may_leave.ok() || !*may_leave) break;
      charge_.Reset();
      role_ = Role::kLeaving;
      spdlog::info("agent: handed over to another one; answering the kubelet until told to end");
      break;
    }
    case Role::kLeaving: {
      if (IsStateLocked(directory_, kNextLockName)) break;
      const absl::StatusOr<bool> is_mine = Take(kAgentLockName, &charge_);
      if (!is_mine.ok() || !*is_mine) break;
      leaving_.Reset();
      role_ = Role::kInCharge;
      spdlog::warn("agent: the one that took over has ended; in charge again");
      break;
    }
  }
  return role_;
}

bool Handover::HasPredecessor() const {
  return role_ == Role::kInCharge && IsStateLocked(directory_, kLeavingLockName);
}

absl::StatusOr<bool> Handover::Take(const char* name, channel::UniqueFd* lock) const {
  absl::StatusOr<channel::UniqueFd> taken = LockState(directory_, name);
  if (absl::IsAlreadyExists(taken.status())) return false;
  if (!taken.ok()) return taken.status();
  *lock = *std::move(taken);
  return true;
}

}  // namespace gpuloom
