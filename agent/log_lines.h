// SPDX-License-Identifier: Apache-2.0
// The agent's log: spdlog formats the messages, which are written as lines of the form that all programs of the node
// use (agent/node/log_line.h). Text from outside (the kubelet, names of pods, a policy) is escaped, so that it cannot
// start another line. What gRPC logs by itself becomes such lines, too, of which it has a budget.
#pragma once

namespace gpuloom {

// Makes spdlog's default logger, and gRPC, write to this process's log (agent/node/log.h), whose level decides what is written.
// Called once, by main; spdlog's calls are then safe from any thread.
void LogThroughNode();

inline constexpr char kAgentProgram[] = "gpuloom-agent";

}  // namespace gpuloom
