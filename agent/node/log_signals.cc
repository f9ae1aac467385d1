// SPDX-License-Identifier: Apache-2.0
#include "agent/node/log_signals.h"

#include <errno.h>

#include <atomic>

#include "agent/node/log.h"

namespace gpuloom {
namespace {

// Global, because a signal handler has no argument for it.
std::atomic<const char*> g_program = nullptr;

void OnLogSignal(int signal) {
  // Whoever was interrupted may be about to look at it, and the log may be full or closed.
  const int interrupted = errno;
  LogMore(g_program.load(), signal == kLogMoreSignal);
  errno = interrupted;
}

}  // namespace

int LogSignal(bool more) { return more ? kLogMoreSignal : kLogAsConfiguredSignal; }

void HandleLogSignals(const char* program) {
  g_program = program;
  struct sigaction action = {};
  action.sa_handler = &OnLogSignal;
  // System calls under way go on: to the program nothing has happened.
  action.sa_flags = SA_RESTART;
  sigaction(kLogMoreSignal, &action, nullptr);
  sigaction(kLogAsConfiguredSignal, &action, nullptr);
}

void HoldLogSignals(bool hold) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, kLogMoreSignal);
  sigaddset(&signals, kLogAsConfiguredSignal);
  // New threads inherit the mask of the one that makes them.
  pthread_sigmask(hold ? SIG_BLOCK : SIG_UNBLOCK, &signals, nullptr);
}

}  // namespace gpuloom
