// SPDX-License-Identifier: Apache-2.0
// The agent's log: spdlog formats the messages, and they become lines as every program of the node writes them
// (agent/node/log_line.h). What others say (the kubelet, names of pods, a policy) stands in them and begins none.
#pragma once

namespace gpuloom {

// From here on spdlog's default logger writes to this process's log (agent/node/log.h), which decides by its level.
// Called once, by main.
void LogThroughNode();

inline constexpr char kAgentProgram[] = "gpuloom-agent";

}  // namespace gpuloom
