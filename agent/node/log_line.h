// SPDX-License-Identifier: Apache-2.0
// One line of the log of agent, scheduler and executor:
//
//   2026-11-23T04:56:50.123Z warning gpuloom-scheduler: session 3 (team-a/trainer-0/main): …
//
// that is the time (UTC), the level, the program and its text. Pure functions, safe from any thread; they take no
// memory and no lock, so a signal handler may call them.
#pragma once

#include <time.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace gpuloom {

enum class LogLevel { kNone, kError, kWarning, kInfo, kDebug };

std::string_view LogLevelName(LogLevel level);
// "error", "warning", "info" or "debug". nullopt for anything else.
[[nodiscard]] std::optional<LogLevel> ParseLogLevel(std::string_view name);

// What a pipe takes whole (PIPE_BUF), so that lines of several threads and processes do not mix.
inline constexpr size_t kMaxLogLineBytes = 4096;

// `text` as one line, cut where it is too long, its end of line included; nothing in it begins another line or writes
// on a terminal (one_line.h). `now` is of CLOCK_REALTIME; `program` is a name of ours. Returns the length.
size_t FormatLogLine(const timespec& now, LogLevel level, std::string_view program,
                     std::string_view text, char (&line)[kMaxLogLineBytes]);

// What an executor's lines name as their program: by it the scheduler knows them from whatever else is written there.
inline constexpr char kExecutorProgram[] = "gpuloom-executor";

// What stands in a line that FormatLogLine has made, without its end of line. nullopt: it has another form. The time is
// looked at for its form only.
struct LogLine {
  LogLevel level;
  std::string_view program;
  std::string_view text;
};
[[nodiscard]] std::optional<LogLine> ParseLogLine(std::string_view line);

}  // namespace gpuloom
