// SPDX-License-Identifier: Apache-2.0
#include "shim/process/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

namespace gpuloom {
namespace {

std::atomic<LogLevel> shown_level{LogLevel::kWarn};

}  // namespace

void SetLogLevel(LogLevel level) { shown_level.store(level, std::memory_order_relaxed); }

void Log(LogLevel level, const char* format, ...) {
  if (level > shown_level.load(std::memory_order_relaxed)) return;
  char line[1024] = "gpuloom: ";
  constexpr size_t kPrefixBytes = sizeof("gpuloom: ") - 1;
  constexpr size_t kRoomBytes = sizeof(line) - kPrefixBytes - 1;  // for the newline
  va_list arguments;
  va_start(arguments, format);
  const int length = vsnprintf(line + kPrefixBytes, kRoomBytes, format, arguments);
  va_end(arguments);
  if (length < 0) return;
  const size_t text =
      static_cast<size_t>(length) < kRoomBytes ? static_cast<size_t>(length) : kRoomBytes - 1;
  line[kPrefixBytes + text] = '\n';
  // One write, so that lines of several threads and processes do not mix. A full or closed standard
  // error is not a failure.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line, kPrefixBytes + text + 1);
}

void WriteError(const void* text, size_t size_bytes) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, size_bytes);
}

void FailureLog::Add(const char* format, ...) {
  if (logged_.exchange(true)) return;
  char reason[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof(reason), format, arguments);
  va_end(arguments);
  Log(level_, "%s: %s", what_, reason);
}

}  // namespace gpuloom
