// SPDX-License-Identifier: Apache-2.0
// Starts and ends an executor, or the process that removes its folder. One thread; Reap is called on SIGCHLD.
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
  // Sends another signal to the process alone, which it is known to handle.
  void Signal(int signal) const;
  // Sends SIGKILL to the whole group. It is dead once Reap says so. Returns false with a message if the process now
  // belongs to another user and we may not signal it.
  [[nodiscard]] bool Kill(std::string* error);
  // True once the process has ended; `how` then says how (HowItEnded in agent/node/process.h).
  [[nodiscard]] bool Reap(std::string* how);

 private:
  int pid_ = 0;
  bool killed_ = false;  // by us
};

// The part of `environment` that an executor needs: the driver's own variables and where to find programs and
// libraries. LD_PRELOAD and everything private to whoever started the scheduler are dropped.
std::vector<std::string> CleanEnvironment(char* const* environment);

}  // namespace gpuloom::scheduler
