#include "agent/scheduler/log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {
namespace {

LogLevel g_level = LogLevel::kInfo;

// Our own lines and what we copy of the executors', in a file that others append to as well.
constexpr off_t kMaxLogBytes = 4 << 20;
constexpr off_t kKeptLogBytes = 1 << 20;

// Only of a file that everybody appends to: elsewhere whoever collects the lines bounds them.
void BoundLog() {
  struct stat status;
  if (fstat(STDERR_FILENO, &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_size <= kMaxLogBytes || (fcntl(STDERR_FILENO, F_GETFL) & O_APPEND) == 0) {
    return;
  }
  const channel::UniqueFd log(open("/proc/self/fd/2", O_RDWR | O_CLOEXEC));
  if (!log.valid()) return;
  std::string kept(static_cast<size_t>(kKeptLogBytes), '\0');
  const ssize_t size = pread(log.get(), kept.data(), kept.size(), status.st_size - kKeptLogBytes);
  kept.resize(size > 0 ? static_cast<size_t>(size) : 0);
  kept.erase(0, kept.find('\n') + 1);
  kept.insert(0, "gpuloom-scheduler: earlier lines were dropped\n");
  if (ftruncate(log.get(), 0) != 0) return;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kept.data(), kept.size());
}

void WriteLine(const std::string& line) {
  const std::string text = line + "\n";
  // A lost log line is no reason to stop serving.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  BoundLog();
}

void Write(LogLevel level, const char* mark, const std::string& line) {
  if (level >= g_level) WriteLine(std::string("gpuloom-scheduler: ") + mark + line);
}

}  // namespace

bool SetLogLevel(const std::string& name) {
  if (name == "debug") {
    g_level = LogLevel::kDebug;
  } else if (name == "info") {
    g_level = LogLevel::kInfo;
  } else if (name == "warning") {
    g_level = LogLevel::kWarning;
  } else if (name == "error") {
    g_level = LogLevel::kError;
  } else {
    return false;
  }
  return true;
}

void LogDebug(const std::string& line) { Write(LogLevel::kDebug, "debug: ", line); }
void LogInfo(const std::string& line) { Write(LogLevel::kInfo, "", line); }
void LogWarning(const std::string& line) { Write(LogLevel::kWarning, "warning: ", line); }
void LogError(const std::string& line) { Write(LogLevel::kError, "error: ", line); }

void LogCopy(const std::string& line) { WriteLine(line); }
void LogFor(control::LineBudget* budget, LogLevel level, const std::string& line) {
  if (level < g_level) return;
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  uint64_t left_out = 0;
  if (!budget->Take(static_cast<uint64_t>(std::chrono::nanoseconds(now).count()), &left_out))
    return;
  if (left_out != 0) {
    Write(level, "",
          std::to_string(left_out) + " lines about whom the next one names were left out");
  }
  Write(level, level == LogLevel::kWarning ? "warning: " : "", line);
}

std::string ProcessText(int pid) { return pid > 0 ? "pid " + std::to_string(pid) : "a process"; }

}  // namespace gpuloom::scheduler
