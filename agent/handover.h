// SPDX-License-Identifier: Apache-2.0
// Which of two agents of one node is in charge of its state. An update starts the new agent before
// the old one ends, so that somebody answers the kubelet at every moment
// (docs/design/agent-update.md); what must not be done twice, registering, collecting and following
// the policy, one of them does.
//
//   kWaiting ── no agent is in charge (any more) ─→ kInCharge ── another one waits ──→ kLeaving
//                                                      ↑──── the agent that took over died ──────┘
//
// Three locks of the state directory, so that each learns of the other's end whatever the end was:
// agent.lock is held in charge, agent.next while waiting, agent.leaving while leaving. Used from
// one thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom {

class Handover {
 public:
  enum class Role { kWaiting, kInCharge, kLeaving };

  explicit Handover(std::string state_directory) : directory_(std::move(state_directory)) {}

  // What this agent is from now on; a few times a second. In charge no longer, it does nothing but
  // answer the kubelet. Fails when the state directory cannot be used.
  absl::StatusOr<Role> Look();

  // In charge: the agent that was so before still answers the kubelet.
  bool HasPredecessor() const;

 private:
  // False: another has it.
  absl::StatusOr<bool> Take(const char* name, channel::UniqueFd* lock) const;

  const std::string directory_;
  Role role_ = Role::kWaiting;
  channel::UniqueFd charge_;
  channel::UniqueFd next_;
  channel::UniqueFd leaving_;
  bool has_said_that_it_waits_ = false;
};

}  // namespace gpuloom
