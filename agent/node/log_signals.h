// SPDX-License-Identifier: Apache-2.0
// Signals that change how much a running program logs: after SIGUSR1 it logs everything, after SIGHUP what it was
// configured to. Our programs pass the signal on to the programs of ours that they start, once those are ready for it.
// HandleLogSignals is called once, by main; the rest is safe from any thread. Nothing fails.
#pragma once

#include <signal.h>

namespace gpuloom {

inline constexpr int kLogMoreSignal = SIGUSR1;
inline constexpr int kLogAsConfiguredSignal = SIGHUP;

// The signal that makes a program log everything (`more`), or what it was configured to.
int LogSignal(bool more);

// Installs the handlers that change this process's log. `program` must live as long as the process.
void HandleLogSignals(const char* program);

// Blocks both signals in this thread and in the threads that it creates, or unblocks them in this thread. So a driver's
// threads, which may not expect signals, receive none.
void HoldLogSignals(bool hold);

}  // namespace gpuloom
