// SPDX-License-Identifier: Apache-2.0
// Runs a container's command as a plain process, for machines without container runtime and without
// root: there are no bind mounts, so what the container would see is given by environment instead.
//   - a variable whose value is the path of a mount (LD_PRELOAD) gets the host's path behind it, in
//     which $LIB stands for lib64;
//   - GPULOOM_SOCKET_DIR is the host's directory behind /var/run/gpuloom.
// Blocks until the process has ended; a process that outlives its timeout is killed with its whole
// group, and so is what it left behind. Safe from any thread.
#pragma once

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/fake_kubelet/fake_kubelet.h"

namespace gpuloom {

struct ProcessResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  bool timed_out = false;
  std::chrono::milliseconds duration{0};
};

// The environment of the container's process: this process's own, then the container's, then
// `extra`.
std::map<std::string, std::string> ContainerEnvironment(
    const FakeContainer& container, const std::map<std::string, std::string>& extra);

// stdout and stderr go to the two files. Fails when the program cannot be started.
absl::StatusOr<ProcessResult> RunProcess(const std::vector<std::string>& command,
                                         const std::map<std::string, std::string>& environment,
                                         const std::string& stdout_path,
                                         const std::string& stderr_path,
                                         std::chrono::milliseconds timeout);

// Kills every group that RunProcess has running now, for a fake-kubelet that is told to stop.
// Async-signal-safe.
void KillRunningProcesses();

}  // namespace gpuloom
