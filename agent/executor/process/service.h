// SPDX-License-Identifier: Apache-2.0
// What an executor does from its start until it ends: it loads the driver, gives up whatever it does not need, starts the
// driver, and runs the loop (agent/executor/main.cc has the threads). What keeps it from serving goes to the scheduler
// (refusal.h) or, once the loop has the socket, to the log.
#pragma once

#include "agent/executor/command_line.h"

namespace gpuloom::executor {

// Call it once, before the process has another thread. Returns the exit status if it could not serve; otherwise it ends the
// process itself, without destructors.
[[nodiscard]] int Serve(const CommandLine& line);

}  // namespace gpuloom::executor
