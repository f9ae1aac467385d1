// Log lines on stderr: "gpuloom-scheduler: session 3 (team-a/trainer-0/main): …". Levels are set
// once by main before anything logs; after that every function is safe from any thread. A line is
// one write, so lines of scheduler and executor do not mix.
#pragma once

#include <string>

#include "proto/control/line_budget.h"

namespace gpuloom::scheduler {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error". False leaves the level alone.
[[nodiscard]] bool SetLogLevel(const std::string& name);

void LogDebug(const std::string& line);
void LogInfo(const std::string& line);
void LogWarning(const std::string& line);
void LogError(const std::string& line);

// A line of another process, whole and of whatever level: it has judged that itself.
void LogCopy(const std::string& line);

// The same for what a tenant can cause at will: no more than its budget allows.
void LogFor(control::LineBudget* budget, LogLevel level, const std::string& line);

// "pid 12", or "a process" when `pid` is 0: SO_PEERCRED has no number for a process outside the pid
// namespace of our own pod.
std::string ProcessText(int pid);

}  // namespace gpuloom::scheduler
