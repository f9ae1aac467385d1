// SPDX-License-Identifier: Apache-2.0
// The log of this process: one line per message (log_line.h), to stderr or to the descriptor set by SetLogFd. A line
// is one write, so lines of several threads do not mix. The setters are called once, by main, before there are other
// threads, but for LogMore; the rest is safe from any thread, allocates no memory and opens no file. A line that
// cannot be written is lost: the log is no reason to stop serving.
#pragma once

#include <string_view>

#include "agent/node/line_budget.h"
#include "agent/node/log_line.h"

namespace gpuloom {

// Lines of less importance than `least` are not written. kInfo by default.
void SetLogLevel(LogLevel least);
void SetLogFd(int fd);
void SetLogFormat(LogFormat format);  // kText by default

// From now on writes every line (`more`), or again only those that SetLogLevel selects; logs that it does. May be
// called at any time, also by a signal handler.
void LogMore(std::string_view program, bool more);
bool LogsMore();

bool IsLogged(LogLevel level);

// Writes the line, whatever its level: the caller has checked IsLogged, or copies lines that another process has
// filtered.
void WriteLogLine(std::string_view program, LogLevel level, std::string_view text);

// Returns whether a line of this level that a tenant can cause at will may be written now, within its budget. If so, it
// first logs how many lines were left out before.
[[nodiscard]] bool TakeLogLine(LineBudget* budget, std::string_view program, LogLevel level);

}  // namespace gpuloom
