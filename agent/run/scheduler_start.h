// SPDX-License-Identifier: Apache-2.0
// Reaches the scheduler of a state folder, starting one when none answers. Any number of processes
// may do so at the same time: the lock file lets one scheduler through, and all end up at its
// socket.
#pragma once

#include <string>

#include "agent/run/scheduler_place.h"
#include "proto/control/client.h"

namespace gpuloom::run {

// False with a message. A scheduler that was started goes on when we end, and ends by itself when
// nobody uses it.
[[nodiscard]] bool ReachScheduler(const SchedulerPlace& place, control::Client* client,
                                  std::string* error);

}  // namespace gpuloom::run
