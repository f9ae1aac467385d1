// The executor's command line. Prints mistakes itself. Called once, from main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/executor/host_budget.h"
#include "agent/executor/log.h"

namespace gpuloom::executor {

struct CommandLine {
  std::string gpu;  // UUID
  std::string cuda_library;
  std::string domain;  // for the log
  LogLevel log_level = LogLevel::kInfo;
  uint64_t memory_limit_bytes = DomainBudget::kDefaultBytes;
};

// nullopt: a mistake, end with status 2.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv);

// "error", "info" or "debug". nullopt for anything else.
[[nodiscard]] std::optional<LogLevel> ParseLogLevel(const std::string& text);

}  // namespace gpuloom::executor
