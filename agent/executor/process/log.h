// SPDX-License-Identifier: Apache-2.0
// The executor's log, printf-like: one line per message (agent/node/log.h) to stderr, which the
// scheduler collects. Safe from any thread.
#pragma once

#include "agent/node/log.h"

namespace gpuloom::executor {

// Messages longer than 1 KiB are cut. At kDebug they start with the monotonic clock, for measurements.
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

// The same for messages that a tenant can cause at will: limited by its budget.
[[gnu::format(printf, 3, 4)]] void LogFor(LineBudget* budget, LogLevel level, const char* format,
                                          ...);

}  // namespace gpuloom::executor
