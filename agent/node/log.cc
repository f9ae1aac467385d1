// SPDX-License-Identifier: Apache-2.0
#include "agent/node/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "agent/node/clock.h"

namespace gpuloom {
namespace {

// Set before there are other threads, and only read afterwards.
LogLevel g_least = LogLevel::kInfo;
LogFormat g_format = LogFormat::kText;
int g_fd = STDERR_FILENO;
std::atomic<bool> g_more = false;
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler sets it");

}  // namespace

void SetLogLevel(LogLevel least) { g_least = least; }
void SetLogFd(int fd) { g_fd = fd; }

void SetLogFormat(LogFormat format) { g_format = format; }

void LogMore(std::string_view program, bool more) {
  g_more = more;
  WriteLogLine(program, LogLevel::kInfo,
               more ? "log: everything from now on, as SIGUSR1 asks; SIGHUP ends that"
                    : "log: again from the level that was configured, as SIGHUP asks");
}

bool LogsMore() { return g_more; }

bool IsLogged(LogLevel level) { return level <= g_least || g_more; }

void WriteLogLine(std::string_view program, LogLevel level, std::string_view text) {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  // On the stack: a signal handler may call this, and no memory may be allocated in one.
  char line[kMaxLogLineBytes];
  const size_t bytes = g_format == LogFormat::kJson
                           ? FormatJsonLogLine(now, level, program, text, line)
                           : FormatLogLine(now, level, program, text, line);
  // One write, not repeated when it falls short: the rest could land in another's line.
  [[maybe_unused]] const ssize_t written = write(g_fd, line, bytes);
}

bool TakeLogLine(LineBudget* budget, std::string_view program, LogLevel level) {
  if (!IsLogged(level)) return false;
  uint64_t left_out = 0;
  if (!budget->Take(NowNs(), &left_out)) return false;
  if (left_out != 0) {
    char text[80];
    // The budget does not know whose it is; the line that follows does.
    snprintf(text, sizeof(text), "%llu lines about whom the next one names were left out",
             static_cast<unsigned long long>(left_out));
    WriteLogLine(program, level, text);
  }
  return true;
}

}  // namespace gpuloom
