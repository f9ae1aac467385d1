// SPDX-License-Identifier: Apache-2.0
// How the node's programs start one another. posix_spawn only: a scheduler has called cuInit, after which a bare fork
// is not safe. Safe from any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace gpuloom {

// The program starts with /dev/null as stdin, no signal blocked or handled, and only the descriptors named here.
struct ProcessStart {
  std::vector<std::string> arguments;  // the first is the program's path
  char* const* environment = nullptr;  // ends with nullptr
  int output = -1;                     // becomes stdout and stderr
  std::vector<int> descriptors;        // become 3, 4, …
  bool has_own_session = false;        // otherwise it has only its own process group
};

// Returns an errno, 0 on success. The caller keeps the descriptors.
[[nodiscard]] int StartProcess(const ProcessStart& start, pid_t* pid);

// Starts a program that outlives its starter, such as a scheduler: in its own session (our Ctrl-C must not reach the
// tenants), with stdout and stderr appended to `log_path`. Returns an errno, 0 on success.
[[nodiscard]] int StartDetached(const std::vector<std::string>& arguments, char* const* environment,
                                const std::string& log_path, pid_t* pid);

// "exited with status 1", "killed by signal 11 (SIGSEGV)"; `wait_status` is waitpid's.
std::string ExitText(int wait_status);
inline constexpr char kEndedWell[] = "exited with status 0";

// The path of this process's own program; the others are installed beside it. Empty if /proc is missing.
std::string OwnProgram();

}  // namespace gpuloom
