// SPDX-License-Identifier: Apache-2.0
// `gpuloom run`: a command as a tenant of this machine's GPU. It stands where the node's agent stands in a cluster: it
// says who the tenant is, starts a scheduler where none answers, and takes the allocation back when the command has ended
// (the scheduler does so too, should this process die). Called from main's thread, the only one.
#pragma once

#include "agent/run/command_line.h"

namespace gpuloom::run {

// Returns when the command has ended, with its exit status (RunCommand), or 125 with a message on standard error if it was
// not started.
[[nodiscard]] int Run(const CommandLine& line);

}  // namespace gpuloom::run
