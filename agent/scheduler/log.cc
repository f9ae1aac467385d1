// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {
namespace {

constexpr char kProgram[] = "gpuloom-scheduler";

// Applies to a file to which several processes append our lines and those of executors.
constexpr off_t kMaxLogBytes = 4 << 20;
constexpr off_t kKeptLogBytes = 1 << 20;

// Only for a regular file in append mode; otherwise whoever collects the lines limits them.
void BoundLog() {
  struct stat status;
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size <= kMaxLogBytes || (fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) == 0) {
    return;
  }
  // Opened anew for reading: stderr itself may be open for writing only. Both name the same file.
  const channel::UniqueFd log(open("/proc/self/fd/2", O_RDWR | O_CLOEXEC));
  if (!log.valid()) return;
  std::string kept(static_cast<size_t>(kKeptLogBytes), '\0');
  const ssize_t size = pread(log.get(), kept.data(), kept.size(), status.st_size - kKeptLogBytes);
  kept.resize(size > 0 ? static_cast<size_t>(size) : 0);
  // Begins with a whole line.
  kept.erase(0, kept.find('\n') + 1);
  // Lines that others append at this moment are lost; in append mode nothing is overwritten.
  if (ftruncate(log.get(), 0) != 0) return;
  WriteLogLine(kProgram, LogLevel::kInfo, "earlier lines were dropped");
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kept.data(), kept.size());
}

void Write(std::string_view program, LogLevel level, std::string_view text) {
  WriteLogLine(program, level, text);
  BoundLog();
}

void Log(LogLevel level, std::string_view text) {
  if (IsLogged(level)) Write(kProgram, level, text);
}

}  // namespace

void LogDebug(std::string_view text) { Log(LogLevel::kDebug, text); }
void LogInfo(std::string_view text) { Log(LogLevel::kInfo, text); }
void LogWarning(std::string_view text) { Log(LogLevel::kWarning, text); }
void LogError(std::string_view text) { Log(LogLevel::kError, text); }

void LogOfExecutor(LogLevel level, std::string_view text) { Write(kExecutorProgram, level, text); }

void LogFor(LineBudget* budget, LogLevel level, std::string_view text) {
  if (TakeLogLine(budget, kProgram, level)) Write(kProgram, level, text);
}

std::string ProcessText(int pid) { return pid > 0 ? "pid " + std::to_string(pid) : "a process"; }

}  // namespace gpuloom::scheduler
