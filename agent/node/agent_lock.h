// SPDX-License-Identifier: Apache-2.0
// Whether an agent is in charge of a state folder, for programs that only look: it holds a lock there as long as it is
// (agent/handover.h). Safe from any thread.
#pragma once

#include <string>

namespace gpuloom {

inline constexpr char kAgentLockName[] = "agent.lock";
// Held while waiting to be in charge, and while leaving.
inline constexpr char kNextLockName[] = "agent.next";
inline constexpr char kLeavingLockName[] = "agent.leaving";

// An agent has been in charge of this state folder, now or before.
bool HasHadAgent(const std::string& state_directory);
// It has, and none is now, nor about to be as during a handover: nothing there changes until the next one starts. False
// as well where this user may not look.
bool LacksAgent(const std::string& state_directory);

}  // namespace gpuloom
