// SPDX-License-Identifier: Apache-2.0
// How much a running program logs, changed from outside: SIGUSR1 has it log everything, SIGHUP what it was configured to.
// A program of ours that starts others passes the signal on to them, once they are ready for it.
#pragma once

#include <signal.h>

namespace gpuloom {

inline constexpr int kLogMoreSignal = SIGUSR1;
inline constexpr int kLogAsConfiguredSignal = SIGHUP;

// The one that brings about what LogsMore says.
int LogSignal(bool more);

// Lets this process's log follow them. `program` lives as long as the process.
void HandleLogSignals(const char* program);

// Blocks both in this thread, and in those that it will make, or lets them through to this one: the threads of a driver,
// which may not expect signals, get none.
void HoldLogSignals(bool hold);

}  // namespace gpuloom
