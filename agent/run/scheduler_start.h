// Reaches the scheduler of a state folder, starting one when none answers. Any number of processes
// may do so at the same time: the lock file lets one scheduler through, and all end up at its
// socket.
#pragma once

#include <chrono>
#include <string>

#include "proto/control/client.h"

namespace gpuloom::run {

struct SchedulerPlace {
  std::string state_dir;
  std::string program;  // gpuloom-scheduler
  std::string gpu;      // number or UUID
  std::string cuda_library;
  bool softgpu = false;
  // Loading a driver takes seconds on a machine that has just started.
  std::chrono::seconds patience{60};
};

// False with a message. A scheduler that was started goes on when we end, and ends by itself when
// nobody uses it.
[[nodiscard]] bool ReachScheduler(const SchedulerPlace& place, control::Client* client,
                                  std::string* error);

}  // namespace gpuloom::run
