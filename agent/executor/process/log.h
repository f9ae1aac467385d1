// The executor's log: one line a message to stderr, which the scheduler collects. Safe from any
// thread: a line is one write. No library behind it, so that the process that shares its address
// space with tenants' kernels stays small.
#pragma once

#include "proto/control/line_budget.h"

namespace gpuloom::executor {

enum class LogLevel { kNone, kError, kInfo, kDebug };

// Lines of a lower importance than `level` are dropped. Set once, before threads are started.
void SetLogLevel(LogLevel level);

// Where lines go from now on, instead of stderr. Set once, before threads are started.
void SetLogFd(int fd);

// printf-like; the prefix "gpuloom-executor: " (with the time, when the level is kDebug) and the newline are added. Longer lines are cut at
// 1 KiB.
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

// The same for what a tenant can cause at will: no more than its budget allows.
[[gnu::format(printf, 3, 4)]] void LogFor(control::LineBudget* budget, LogLevel level,
                                          const char* format, ...);

}  // namespace gpuloom::executor
