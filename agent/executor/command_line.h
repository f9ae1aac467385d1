// SPDX-License-Identifier: Apache-2.0
// The executor's command line. Prints mistakes itself. Called once, from main.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "agent/executor/session/host_budget.h"
#include "agent/node/log_line.h"

namespace gpuloom::executor {

struct CommandLine {
  std::string gpu;  // UUID
  std::string cuda_library;
  std::string domain;  // for the log
  LogLevel log_level = LogLevel::kInfo;
  unsigned user = 0;   // to become; 0: stays who it is
  std::string folder;  // to make and to write to; empty: none
  bool tells_refused_calls = false;
  // What the scheduler speaks (proto/control/protocol_version.h). It and its executors come from one
  // folder, but the files there may have been replaced since it started.
  std::string control_version = "3.0";  // which did not say so
  bool lenient = false;                 // ConfinementWishes::lenient
  // Removes this folder instead of serving anybody.
  std::string folder_to_remove;
  bool shows_version = false;  // prints it instead of serving anybody
  uint64_t memory_limit_bytes = DomainBudget::kDefaultBytes;
};

// nullopt: a mistake, end with status 2.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv);

}  // namespace gpuloom::executor
