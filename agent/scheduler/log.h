// SPDX-License-Identifier: Apache-2.0
// The scheduler's log: one line per message (agent/node/log.h) to stderr, "… gpuloom-scheduler: session 3
// (team-a/trainer-0/main): …". A file that grows keeps its last lines. Safe from any thread.
#pragma once

#include <string>
#include <string_view>

#include "agent/node/log.h"

namespace gpuloom::scheduler {

void LogDebug(std::string_view text);
void LogInfo(std::string_view text);
void LogWarning(std::string_view text);
void LogError(std::string_view text);

// Logs a line of an executor, whatever its level: the executor has filtered by level already.
void LogOfExecutor(LogLevel level, std::string_view text);

// For lines that a tenant can cause at will: logs no more than `budget` allows.
void LogFor(LineBudget* budget, LogLevel level, std::string_view text);

// "pid 12", or "a process" when `pid` is 0: SO_PEERCRED has no number for a process outside the pid
// namespace of our own pod.
std::string ProcessText(int pid);

}  // namespace gpuloom::scheduler
