// SPDX-License-Identifier: Apache-2.0
#include "agent/node/log_line.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "agent/node/one_line.h"

namespace gpuloom {
namespace {

constexpr LogLevel kLevels[] = {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo,
                                LogLevel::kDebug};
constexpr std::string_view kTimeForm = "0000-00-00T00:00:00.000Z";  // 0: any digit
// Our names are shorter; this keeps the rest of the line within its bounds whatever is passed.
constexpr size_t kMaxProgramBytes = 64;

// The last digits of `number`, with zeros before it.
char* WriteNumber(unsigned number, int digits, char* out) {
  for (int i = digits - 1; i >= 0; --i, number /= 10) out[i] = static_cast<char>('0' + number % 10);
  return out + digits;
}

char* Append(std::string_view text, char* out) {
  std::memcpy(out, text.data(), text.size());
  return out + text.size();
}

// gmtime_r may take a lock and read the time zone's file.
char* WriteTime(const timespec& now, char* out) {
  // The calendar of <chrono> is pure arithmetic.
  const std::chrono::sys_seconds seconds{std::chrono::seconds(now.tv_sec)};
  const auto day = std::chrono::floor<std::chrono::days>(seconds);
  const std::chrono::year_month_day date(day);
  const std::chrono::hh_mm_ss time(seconds - day);
  out = WriteNumber(static_cast<unsigned>(static_cast<int>(date.year())), 4, out);
  *out++ = '-';
  out = WriteNumber(static_cast<unsigned>(date.month()), 2, out);
  *out++ = '-';
  out = WriteNumber(static_cast<unsigned>(date.day()), 2, out);
  *out++ = 'T';
  out = WriteNumber(static_cast<unsigned>(time.hours().count()), 2, out);
  *out++ = ':';
  out = WriteNumber(static_cast<unsigned>(time.minutes().count()), 2, out);
  *out++ = ':';
  out = WriteNumber(static_cast<unsigned>(time.seconds().count()), 2, out);
  *out++ = '.';
  out = WriteNumber(static_cast<unsigned>(now.tv_nsec / 1'000'000), 3, out);
  *out++ = 'Z';
  return out;
}

bool IsTime(std::string_view text) {
  if (text.size() != kTimeForm.size()) return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_digit = text[i] >= '0' && text[i] <= '9';
    if (kTimeForm[i] == '0' ? !is_digit : text[i] != kTimeForm[i]) return false;
  }
  return true;
}

// `text` as one line and a string of JSON, in `room` bytes at most, cut behind a whole character.
char* AppendJson(std::string_view text, size_t room, char* out) {
  constexpr std::string_view kMore = "…";
  char one_line[kMaxLogLineBytes];
  const std::string_view line(one_line, WriteOneLine(text, one_line, room));
  const auto escapes = [](char c) { return c == '"' || c == '\\'; };
  // Escaping may make it longer than it was as one line; only then the mark is needed here.
  const bool fits =
      line.size() + static_cast<size_t>(std::count_if(line.begin(), line.end(), escapes)) <= room;
  const char* const end = out + (fits ? room : room - kMore.size());
  for (size_t at = 0; at < line.size();) {
    size_t bytes = 1;
    while (at + bytes < line.size() && (line[at + bytes] & 0xc0) == 0x80) ++bytes;  // UTF-8
    const size_t needed = bytes + (escapes(line[at]) ? 1 : 0);
    if (needed > static_cast<size_t>(end - out)) break;
    if (escapes(line[at])) *out++ = '\\';
    out = Append(line.substr(at, bytes), out);
    at += bytes;
  }
  return fits ? out : Append(kMore, out);
}

// Takes the text before `mark`, and the mark, off `rest`. False: there is no mark.
bool TakeBefore(std::string_view mark, std::string_view* rest, std::string_view* before) {
  const size_t at = rest->find(mark);
  if (at == std::string_view::npos) return false;
  *before = rest->substr(0, at);
  rest->remove_prefix(at + mark.size());
  return true;
}

}  // namespace

std::string_view LogLevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kNone:
      return "none";
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "none";
}

std::optional<LogLevel> ParseLogLevel(std::string_view name) {
  for (const LogLevel level : kLevels) {
    if (name == LogLevelName(level)) return level;
  }
  return std::nullopt;
}

std::optional<LogFormat> ParseLogFormat(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return std::nullopt;
}

size_t FormatLogLine(const timespec& now, LogLevel level, std::string_view program,
                     std::string_view text, char (&line)[kMaxLogLineBytes]) {
  char* out = WriteTime(now, line);
  *out++ = ' ';
  out = Append(LogLevelName(level), out);
  *out++ = ' ';
  out = Append(program.substr(0, kMaxProgramBytes), out);
  out = Append(": ", out);
  // The newline always fits.
  const size_t room = sizeof(line) - static_cast<size_t>(out - line) - 1;
  out += WriteOneLine(text, out, room);
  *out++ = '\n';
  return static_cast<size_t>(out - line);
}

size_t FormatJsonLogLine(const timespec& now, LogLevel level, std::string_view program,
                         std::string_view text, char (&line)[kMaxLogLineBytes]) {
  constexpr std::string_view kEnd = "\"}\n";
  char* out = WriteTime(now, Append("{\"time\":\"", line));
  out = Append("\",\"level\":\"", out);
  out = Append(LogLevelName(level), out);
  out = Append("\",\"program\":\"", out);
  out = Append(program.substr(0, kMaxProgramBytes), out);
  out = Append("\",\"message\":\"", out);
  const size_t room = sizeof(line) - static_cast<size_t>(out - line) - kEnd.size();
  out = AppendJson(text, room, out);
  return static_cast<size_t>(Append(kEnd, out) - line);
}

// Time, level and program have no blanks, so each ends at the first one; the text is all that is
// left.
std::optional<LogLine> ParseLogLine(std::string_view line) {
  std::string_view time, level_name;
  LogLine parsed;
  if (!TakeBefore(" ", &line, &time) || !IsTime(time)) return std::nullopt;
  if (!TakeBefore(" ", &line, &level_name)) return std::nullopt;
  const std::optional<LogLevel> level = ParseLogLevel(level_name);
  if (!level || !TakeBefore(": ", &line, &parsed.program)) return std::nullopt;
  parsed.level = *level;
  parsed.text = line;
  return parsed;
}

}  // namespace gpuloom
