// SPDX-License-Identifier: Apache-2.0
// One line of the log of agent, scheduler and executor:
//
//   2026-11-23T04:56:50.123Z warning gpuloom-scheduler: session 3 (team-a/trainer-0/main): …
//
// or, for programs that collect logs,
//
//   {"time":"2026-11-23T04:56:50.123Z","level":"warning","program":"gpuloom-scheduler","message":"session 3 …"}
//
// Each line has the time (UTC), the level, the program and its text. Pure functions, safe from any thread; they
// allocate no memory and take no lock, so a signal handler may call them.
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

enum class LogFormat { kText, kJson };

// "text" or "json". nullopt for anything else.
[[nodiscard]] std::optional<LogFormat> ParseLogFormat(std::string_view name);

// The most that a pipe takes atomically (PIPE_BUF), so that lines of several threads and processes do not mix.
inline constexpr size_t kMaxLogLineBytes = 4096;

// Formats `text` as one line, newline included, cut if too long; nothing in it starts another line or controls a
// terminal (one_line.h). `now` is from CLOCK_REALTIME; `program` is one of our names. Returns the length.
size_t FormatLogLine(const timespec& now, LogLevel level, std::string_view program,
                     std::string_view text, char (&line)[kMaxLogLineBytes]);

// The same as a JSON object. `text` is escaped twice: first as for a line of text, then for JSON.
size_t FormatJsonLogLine(const timespec& now, LogLevel level, std::string_view program,
                         std::string_view text, char (&line)[kMaxLogLineBytes]);

// The program named in an executor's lines, by which the scheduler distinguishes them from other output.
inline constexpr char kExecutorProgram[] = "gpuloom-executor";

// Splits a line that FormatLogLine has made, given without its newline, into its parts. nullopt if it has another form.
// Of the time only the form is checked.
struct LogLine {
  LogLevel level;
  std::string_view program;
  std::string_view text;
};
[[nodiscard]] std::optional<LogLine> ParseLogLine(std::string_view line);

}  // namespace gpuloom
