// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/process/log.h"

#include <stdio.h>

#include <algorithm>
#include <cstdarg>

#include "agent/node/clock.h"

namespace gpuloom::executor {
namespace {

// Formats into a buffer on the stack: a log line must not need memory when there is none.
void Write(LogLevel level, const char* format, va_list arguments) {
  char text[1024];
  int begin = 0;
  if (IsLogged(LogLevel::kDebug)) {
    const auto now_us = static_cast<unsigned long long>(NowNs() / 1000);
    begin = snprintf(text, sizeof(text), "[%llu.%06llu] ", now_us / 1'000'000, now_us % 1'000'000);
  }
  const size_t room = sizeof(text) - static_cast<size_t>(begin);
  // The length of the whole text, which may exceed the room for it.
  const int wanted = vsnprintf(text + begin, room, format, arguments);
  if (wanted < 0) return;
  const size_t length =
      static_cast<size_t>(begin) + std::min(static_cast<size_t>(wanted), room - 1);
  WriteLogLine(kExecutorProgram, level, {text, length});
}

}  // namespace

void Log(LogLevel level, const char* format, ...) {
  if (!IsLogged(level)) return;
  va_list arguments;
  va_start(arguments, format);
  Write(level, format, arguments);
  va_end(arguments);
}

void LogFor(LineBudget* budget, LogLevel level, const char* format, ...) {
  if (!TakeLogLine(budget, kExecutorProgram, level)) return;
  va_list arguments;
  va_start(arguments, format);
  Write(level, format, arguments);
  va_end(arguments);
}

}  // namespace gpuloom::executor
