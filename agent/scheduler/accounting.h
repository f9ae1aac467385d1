// SPDX-License-Identifier: Apache-2.0
// What sessions, trust domains and the GPU have used of the device's time, and whose fault it was that sessions ended.
// What executors report is untrusted: a figure never goes back, and nobody is charged for more of the device's time than
// has passed (device_time.h). A part of the scheduler; its thread only. `turns` and `book` outlive it.
#pragma once

#include <string>

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class DomainBook;
class Turns;

class Accounting : public Part {
 public:
  Accounting(SchedulerPort* port, Turns* turns, DomainBook* book)
      : Part(port), turns_(turns), book_(book) {}

  void On(Executor* executor, const control::SessionCounters& message, control::Incoming& in);

  // Takes over the counters that its executor reports.
  void Raise(Session* session, uint64_t kernels_launched_untrusted,
             const control::TimeUsage& time_untrusted, const control::WorkCounts& work_untrusted);
  // Charges reported work, as far as the executor's part of the device's time allows.
  void Charge(Session* session);
  void ChargeAll();
  // Counts a session's fault, once for each session. `what`: the error, or the kernel, in words.
  static void NoteFault(Session* session, control::Fault fault, const std::string& what);

  // What all sessions that there ever were have been charged.
  const control::BusyTime& busy() const { return busy_; }

 private:
  Turns* const turns_;
  DomainBook* const book_;
  control::BusyTime busy_{};
};

}  // namespace gpuloom::scheduler
