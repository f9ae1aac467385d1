// SPDX-License-Identifier: Apache-2.0
// Starts an executor, or what removes its folder, and ends it. One thread; Reap is called when SIGCHLD says so.
#pragma once

#include <string>
#include <vector>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

class ChildProcess {
 public:
  // Runs `arguments` as StartProcess does, in a process group of its own and with what CleanEnvironment leaves.
  // False with a message.
  [[nodiscard]] bool Start(const std::vector<std::string>& arguments, int output,
                           const std::vector<int>& descriptors, std::string* error);

  int pid() const { return pid_; }
  // SIGABRT to the process alone: it says where it hangs, when it is still able to, and ends.
  void Abort() const;
  // SIGKILL to the whole group. It is dead when Reap says so. False with a message: it is another
  // user's by now, and we may not.
  [[nodiscard]] bool Kill(std::string* error);
  // True once the process has ended; `how` then says how (HowItEnded in agent/node/process.h).
  [[nodiscard]] bool Reap(std::string* how);

 private:
  int pid_ = 0;
  bool killed_ = false;  // by us
};

// Of `environment`, what an executor needs: the driver's own variables and where to find programs
// and libraries. LD_PRELOAD and everything private to whoever started the scheduler stay behind.
std::vector<std::string> CleanEnvironment(char* const* environment);

}  // namespace gpuloom::scheduler
