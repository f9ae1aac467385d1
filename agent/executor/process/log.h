// SPDX-License-Identifier: Apache-2.0
// The executor's log, printf-like: one line a message (agent/node/log.h) to stderr, which the scheduler collects. Safe
// from any thread.
#pragma once

#include "agent/node/log.h"

namespace gpuloom::executor {

// Texts longer than 1 KiB are cut. With kDebug they begin with the machine's monotonic clock, for who measures.
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

// The same for what a tenant can cause at will: no more than its budget allows.
[[gnu::format(printf, 3, 4)]] void LogFor(LineBudget* budget, LogLevel level, const char* format,
                                          ...);

}  // namespace gpuloom::executor
