// SPDX-License-Identifier: Apache-2.0
// The signals that the scheduler acts on: a child that has ended, more or less to log, and the end. They interrupt
// nothing: they come through the event loop like everything else. The scheduler's thread only.
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

// Blocks them, and has a write to a closed connection fail by its result.
void BlockSignals();

class SignalWatch {
 public:
  SignalWatch();
  // False when the kernel gave no descriptor.
  bool valid() const { return fd_.valid(); }
  // From now on `scheduler` hears of each signal, also of one that is pending. `loop` outlives this; it does not run
  // any more when `scheduler` ends.
  void Begin(EventLoop* loop, Scheduler* scheduler);

 private:
  void PassOn(Scheduler* scheduler);

  channel::UniqueFd fd_;
  Watch watch_;
};

}  // namespace gpuloom::scheduler
