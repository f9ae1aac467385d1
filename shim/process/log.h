// SPDX-License-Identifier: Apache-2.0
// Log lines for the operator on standard error, "gpuloom: …". Never a cause of failure; safe from
// any thread. Warnings are shown unless session.cc has read something else from GPULOOM_LOG.
#pragma once

namespace gpuloom {

enum class LogLevel : int { kOff, kError, kWarn, kInfo };

void SetLogLevel(LogLevel level);

// One line without its newline; cut at 1 KiB.
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

}  // namespace gpuloom
