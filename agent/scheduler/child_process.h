// SPDX-License-Identifier: Apache-2.0
// Starts and ends an executor, or the process that removes its folder. The destructor leaves the process alone: whoever
// owns this kills and reaps it. The scheduler's thread only; Reap is called on SIGCHLD.
#pragma once

#include <string>
#include <vector>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

class ChildProcess {
 public:
  // Runs `arguments` as StartProcess does, in its own process group and with the environment that CleanEnvironment
  // leaves. Returns false with a message.
  [[nodiscard]] bool Start(const std::vector<std::string>& arguments, int output,
                           const std::vector<int>& descriptors, std::string* error);

  int pid() const { return pid_; }
  // Sends SIGABRT to the process alone: it logs where it hangs, if it still can, and ends.
  void Abort() const;
  // Sends the process alone another signal, one that it is known to handle.
  void Signal(int signal) const;
  // Sends SIGKILL to the whole group; the process is dead once Reap says so. Returns false with a message if the
  // process runs as another user by then and we may not signal it.
  [[nodiscard]] bool Kill(std::string* error);
  // True once the process has ended; `how` then says how (ExitText in agent/node/process.h).
  [[nodiscard]] bool Reap(std::string* how);

 private:
  int pid_ = 0;
  bool killed_ = false;  // by us
};

// The part of `environment` that an executor needs: the driver's own variables and where to find programs and
// libraries. LD_PRELOAD and everything private to whoever started the scheduler are dropped.
std::vector<std::string> CleanEnvironment(char* const* environment);

}  // namespace gpuloom::scheduler
