#include "agent/executor/process/log.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

#include "agent/executor/device/spin.h"

namespace gpuloom::executor {
namespace {

LogLevel g_level = LogLevel::kInfo;
int g_fd = STDERR_FILENO;

void Write(const char* format, va_list arguments) {
  char line[1024];
  constexpr char kPrefix[] = "gpuloom-executor: ";
  constexpr size_t kPrefixBytes = sizeof(kPrefix) - 1;
  std::memcpy(line, kPrefix, kPrefixBytes);
  constexpr size_t kRoom = sizeof(line) - kPrefixBytes - 1;
  int begin = 0;
  if (g_level == LogLevel::kDebug) {  // for who measures: the machine's monotonic clock
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    begin = snprintf(line + kPrefixBytes, kRoom, "[%lld.%06ld] ",
                     static_cast<long long>(now.tv_sec), now.tv_nsec / 1000);
    if (begin < 0) return;
  }
  const int wanted = vsnprintf(line + kPrefixBytes + begin, kRoom - begin, format, arguments);
  if (wanted < 0) return;
  const size_t text = static_cast<size_t>(begin) + static_cast<size_t>(wanted);
  size_t length = text < kRoom ? text : kRoom - 1;
  // Text from a driver or a tenant's label must not forge lines.
  for (size_t i = 0; i < length; ++i) {
    char& c = line[kPrefixBytes + i];
    if (c == '\n' || c == '\r') c = ' ';
  }
  length += kPrefixBytes;
  line[length++] = '\n';
  [[maybe_unused]] const ssize_t written = write(g_fd, line, length);
}

}  // namespace

void SetLogLevel(LogLevel level) { g_level = level; }
void SetLogFd(int fd) { g_fd = fd; }

void Log(LogLevel level, const char* format, ...) {
  if (level > g_level) return;
  va_list arguments;
  va_start(arguments, format);
  Write(format, arguments);
  va_end(arguments);
}

void LogFor(control::LineBudget* budget, LogLevel level, const char* format, ...) {
  uint64_t left_out = 0;
  if (level > g_level || !budget->Take(NowNs(), &left_out)) return;
  if (left_out != 0) {
    Log(level, "%llu lines about the tenant that is named next were left out",
        static_cast<unsigned long long>(left_out));
  }
  va_list arguments;
  va_start(arguments, format);
  Write(format, arguments);
  va_end(arguments);
}

}  // namespace gpuloom::executor
