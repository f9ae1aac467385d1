// Log lines on stderr: "gpuloom-scheduler: session 3 (team-a/trainer-0/main): …". Levels are set
// once by main before anything logs; after that every function is safe from any thread. A line is
// one write, so lines of scheduler and executor do not mix.
#pragma once

#include <string>

namespace gpuloom::scheduler {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

// "debug", "info", "warning", "error". False leaves the level alone.
[[nodiscard]] bool SetLogLevel(const std::string& name);

void LogDebug(const std::string& line);
void LogInfo(const std::string& line);
void LogWarning(const std::string& line);
void LogError(const std::string& line);

}  // namespace gpuloom::scheduler
