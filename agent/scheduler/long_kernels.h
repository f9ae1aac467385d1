// SPDX-License-Identifier: Apache-2.0
// Kernels that run for longer than the policy says (control::KernelTerms): they are reported, and cost their trust
// domain the executor. Executors say how long a kernel has run, and are believed no more than their own part of the
// device's time since: a kernel is not charged with what other domains had of it meanwhile. A wrong word costs an
// executor's own domain. A part of the scheduler; its thread only. `turns` outlives it.
#pragma once

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class Turns;

class LongKernels : public Part {
 public:
  LongKernels(SchedulerPort* port, Turns* turns) : Part(port), turns_(turns) {}

  void On(Executor* executor, const control::LongKernel& message, control::Incoming& in);

 private:
  void Judge(Session* session, const control::LongKernel& message, control::Answer* answer);

  Turns* const turns_;
};

}  // namespace gpuloom::scheduler
