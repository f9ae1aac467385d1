// SPDX-License-Identifier: Apache-2.0
// Log lines for the operator on standard error, "gpuloom: …". Never a cause of failure; safe from
// any thread. Warnings are shown unless session.cc has read something else from GPULOOM_LOG. The level
// is the process's. `what` of a FailureLog outlives it.
#pragma once

#include <atomic>

namespace gpuloom {

enum class LogLevel : int { kOff, kError, kWarn, kInfo };

void SetLogLevel(LogLevel level);

// One line without its newline; cut at 1 KiB.
// To standard error as it is, past the C library's buffers and locks.
void WriteError(const void* text, size_t size_bytes);
[[gnu::format(printf, 2, 3)]] void Log(LogLevel level, const char* format, ...);

// Logs why `what` cannot be used: only the first reason, because programs try again and again.
class FailureLog {
 public:
  constexpr FailureLog(LogLevel level, const char* what) : level_(level), what_(what) {}

  [[gnu::format(printf, 2, 3)]] void Add(const char* format, ...);

 private:
  const LogLevel level_;
  const char* const what_;
  std::atomic<bool> logged_{false};
};

}  // namespace gpuloom
