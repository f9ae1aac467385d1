// SPDX-License-Identifier: Apache-2.0
// The log of this process: one line a message (log_line.h) to stderr, or to the descriptor that is set. A line is one
// write, so lines of several threads do not mix. What is set is set once, by main, before there are other threads;
// the rest is safe from any thread, takes no memory and opens no file, and a line that cannot be written is lost: the
// log is no reason to stop serving.
#pragma once

#include <string_view>

#include "agent/node/line_budget.h"
#include "agent/node/log_line.h"

namespace gpuloom {

// Lines of less importance are not written. kInfo unless set.
void SetLogLevel(LogLevel least);
void SetLogFd(int fd);

bool IsLogged(LogLevel level);

// Writes the line, whatever its level: who calls has asked IsLogged, or copies what another process has judged.
void WriteLogLine(std::string_view program, LogLevel level, std::string_view text);

// Whether a line of this level that a tenant can cause at will may be written now: when its budget allows. Says before
// it how many were left out.
[[nodiscard]] bool TakeLogLine(LineBudget* budget, std::string_view program, LogLevel level);

}  // namespace gpuloom
