// SPDX-License-Identifier: Apache-2.0
// The scheduler's command line. Plain values, which main owns and copies into Options. Called once, from main, before there
// is another thread. Prints help, the version and errors itself; the exit status is then 0, or 2 for a mistake.
#pragma once

#include <optional>
#include <string>

#include "agent/scheduler/scheduler.h"

namespace gpuloom::scheduler {

struct CommandLine {
  std::string gpu;  // index or "GPU-…"
  Options options;
  std::string executor_users;  // for ExecutorUsers::Choose
};

// nullopt if there is nothing to run: exit with *exit_status.
[[nodiscard]] std::optional<CommandLine> ParseCommandLine(int argc, char** argv, int* exit_status);

}  // namespace gpuloom::scheduler
