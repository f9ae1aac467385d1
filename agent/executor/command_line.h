// SPDX-License-Identifier: Apache-2.0
// The executor's command line, which the scheduler writes (executor_launcher.cc). Plain values, owned by main. Called once,
// from main, before there is another thread. Prints errors itself.
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
  unsigned user = 0;   // to switch to; 0: keeps the current user
  std::string folder;  // to create, for all that it writes; empty: none
  // The scheduler answers the system calls that the filter refuses (ConfinementWishes).
  bool tells_refused_calls = false;
  // The control protocol version that the scheduler speaks (proto/control/protocol_version.h). Scheduler and
  // executors come from one folder, but the files there may have been replaced since the scheduler started.
  std::string control_version = "3.0";  // the version of schedulers that do not pass it
  bool lenient = false;                 // ConfinementWishes::lenient
  // If set, removes this folder and exits.
  std::string folder_to_remove;
  bool shows_version = false;  // prints its version and CUPTI's and exits
  uint64_t memory_limit_bytes = DomainBudget::kDefaultBytes;
};

// Returns nullopt on an error: exit with status 2.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv);

}  // namespace gpuloom::executor
