// SPDX-License-Identifier: Apache-2.0
// What the executor reads from the environment passed on by the scheduler, and what it sets there
// for the driver. Called from main, before there are other threads.
#pragma once

#include <cstdint>
#include <string>

#include "agent/node/log_line.h"

namespace gpuloom::executor {

// GPULOOM_EXECUTOR_LOG, for debugging: overrides the scheduler's level. Returns `told` if it is not set, or names no
// level.
LogLevel LogLevelOf(LogLevel given);

// Returns false if GPULOOM_EXECUTOR_BATCHING=off, for comparisons (docs/design/batching.md).
bool IsBatchingOn();
// Returns false if GPULOOM_EXECUTOR_SHARING=off, also for comparisons: every session then submits without limits.
bool IsSharingOn();
// GPULOOM_EXECUTOR_CUPTI, where CUPTI is: a path, or "off". Empty: the usual places are searched (trace/cupti.h).
std::string CuptiSetting();

// How many hardware queues the driver gives a context: CUDA_DEVICE_MAX_CONNECTIONS, which PrepareForDriver sets if nobody has.
uint32_t HardwareQueueCount();

// Raises the descriptor limit to the hard limit, ignores SIGPIPE, makes timers exact for this thread and those that it
// starts, and sets the variables that the driver reads in cuInit.
void PrepareForDriver();

}  // namespace gpuloom::executor
