// SPDX-License-Identifier: Apache-2.0
// Starts a scheduler and detects its end. The process gets a session of its own and no descriptors but /dev/null and
// its log, and outlives the agent. Used from one thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace gpuloom {

// Starts arguments[0] with the agent's environment; stdout and stderr are appended to log_path,
// which is moved to log_path.1 first when it has grown past 16 MiB. Fails when the program cannot
// be executed.
absl::StatusOr<pid_t> StartScheduler(const std::vector<std::string>& arguments,
                                     const std::string& log_path);

// How a child process ended, in words ("exited with status 1"); nullopt while it runs.
std::optional<std::string> ReapProcess(pid_t pid);

// Reaps children that have ended and are not in `ours`: the first process of a container inherits the executors of a
// scheduler that died.
void ReapStrays(const std::set<pid_t>& ours);

// Whether a process holds the scheduler's lock in this directory.
bool IsSchedulerLockHeld(const std::string& directory);
// Whether certainly none does, be it only because there is no such directory.
bool IsSchedulerGone(const std::string& directory);

}  // namespace gpuloom
