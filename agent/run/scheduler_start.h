// SPDX-License-Identifier: Apache-2.0
// Connects to the scheduler of a state folder, starting one when none answers. Any number of processes may do so at the
// same time: the lock file admits one scheduler, and all of them connect to it. One thread; blocks for up to
// SchedulerTarget::patience.
#pragma once

#include <string>

#include "agent/run/scheduler_target.h"
#include "proto/control/client.h"

namespace gpuloom::run {

// False with a message. A scheduler that was started outlives this process, and ends by itself when it is not used any
// more.
[[nodiscard]] bool ReachScheduler(const SchedulerTarget& target, control::Client* client,
                                  std::string* error);

}  // namespace gpuloom::run
