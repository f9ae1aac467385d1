// SPDX-License-Identifier: Apache-2.0
// Decides which of two agents of one node is in charge of its state. An update starts the new agent before the old one
// ends, so that the kubelet is answered at every moment (docs/design/agent-update.md). Only the agent in charge does
// what must not be done twice: registering, collecting and following the policy.
//
//   kWaiting ── no agent is in charge (any more) ─→ kInCharge ── another one waits ──→ kLeaving
//                                                      ↑──── the agent that took over died ──────┘
//
// Uses three locks in the state directory, so that each agent notices the other's end, however it ends: agent.lock is
// held while in charge, agent.next while waiting, agent.leaving while leaving. Owns the locks that it holds; its
// destructor releases them. Used from one thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {

class Handover {
 public:
  enum class Role { kWaiting, kInCharge, kLeaving };

  explicit Handover(std::string state_directory) : directory_(std::move(state_directory)) {}

  // Returns this agent's role from this moment on. Call it a few times a second. An agent that is not in charge only
  // answers the kubelet. Fails when the state directory cannot be used.
  absl::StatusOr<Role> Look();

  // For the agent in charge: whether its predecessor still answers the kubelet.
  bool HasPredecessor() const;

 private:
  // Returns false if another process holds the lock.
  absl::StatusOr<bool> Take(const char* name, channel::UniqueFd* lock) const;

  const std::string directory_;
  Role role_ = Role::kWaiting;
  channel::UniqueFd charge_;
  channel::UniqueFd next_;
  channel::UniqueFd leaving_;
  bool logged_wait_ = false;
};

}  // namespace gpuloom
