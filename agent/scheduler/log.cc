#include "agent/scheduler/log.h"

#include <unistd.h>

namespace gpuloom::scheduler {
namespace {

LogLevel g_level = LogLevel::kInfo;

void Write(LogLevel level, const char* mark, const std::string& line) {
  if (level < g_level) return;
  const std::string text = std::string("gpuloom-scheduler: ") + mark + line + "\n";
  // A lost log line is no reason to stop serving.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
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

}  // namespace gpuloom::scheduler
