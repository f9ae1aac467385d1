// SPDX-License-Identifier: Apache-2.0
// What the executor takes from the environment that the scheduler passed on, and what it sets up
// there for the driver. Called from main, before there are other threads.
#pragma once

#include "agent/node/log_line.h"

namespace gpuloom::executor {

// GPULOOM_EXECUTOR_LOG, for who looks for a fault: it counts more than what the scheduler says.
// `told` when it is not set, or names no level.
LogLevel LogLevelOf(LogLevel told);

// GPULOOM_EXECUTOR_BATCHING=off is for comparisons (docs/design/batching.md).
bool IsBatchingOn();

// As many descriptors as the hard limit allows, no end by SIGPIPE, and the variables that the driver
// reads in cuInit.
void PrepareForDriver();

}  // namespace gpuloom::executor
