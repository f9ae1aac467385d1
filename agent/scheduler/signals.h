// SPDX-License-Identifier: Apache-2.0
// The signals that the scheduler handles: SIGCHLD (a child has ended), SIGTERM and SIGINT (end), and those that change how
// much is logged (agent/node/log_signals.h). They are blocked and read from a signalfd by the event loop, so they interrupt
// no system call. The scheduler's thread only.
//
//   BlockSignals();                       // before there is another thread: threads inherit it
//   SignalWatch signals;
//   if (!signals.valid()) …               // errno says why
//   signals.Begin(&loop, &scheduler);
#pragma once

#include "agent/scheduler/event_loop.h"
#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

class Scheduler;

// Blocks them, and ignores SIGPIPE: a write to a closed connection fails with EPIPE.
void BlockSignals();

class SignalWatch {
 public:
  SignalWatch();
  // False when the kernel gave no descriptor.
  bool valid() const { return fd_.valid(); }
  // From now on each signal, also a pending one, calls `scheduler`. `loop` outlives this object, and does not run any more
  // when `scheduler` is destroyed.
  void Begin(EventLoop* loop, Scheduler* scheduler);

 private:
  void PassOn(Scheduler* scheduler);

  channel::UniqueFd fd_;
  Watch watch_;
};

}  // namespace gpuloom::scheduler
