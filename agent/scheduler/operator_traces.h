// SPDX-License-Identifier: Apache-2.0
// Operators' traces (docs/tracing.md), one at a time: requested over the control socket, recorded by the executors. What
// an executor says of its trace is untrusted: it affects only its own part, and the scheduler does not wait for one that
// does not answer. A part of the scheduler; its thread only. `accounting` and `own_traces` outlive it.
//
//   Apply(controller, BeginTrace), Await; …; Apply(controller, EndTrace), Await      or DropOf(controller)
#pragma once

#include <memory>
#include <string>

#include "agent/scheduler/scheduler_port.h"
#include "agent/scheduler/trace.h"
#include "proto/control/connection.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::scheduler {

class Accounting;
class OwnTraces;

class OperatorTraces : public Part {
 public:
  OperatorTraces(SchedulerPort* port, Accounting* accounting, OwnTraces* own_traces)
      : Part(port), accounting_(accounting), own_traces_(own_traces) {}

  // The answer of one that is applied is sent by Await.
  [[nodiscard]] bool Apply(Controller* controller, const control::BeginTrace& message,
                           std::string* error);
  [[nodiscard]] bool Apply(Controller* controller, const control::EndTrace& message,
                           std::string* error);
  // Answers BeginTrace or EndTrace when the executors have done their part.
  void Await(bool begins, uint32_t request);
  // Ends the controller's trace without an answer. Call before the controller is deleted.
  void DropOf(const Controller& controller);

  void On(Executor* executor, const control::TraceProgress& message, control::Incoming& in);

  bool active() const { return trace_ != nullptr; }
  // These do nothing without a trace.
  void AddPart(Executor* executor);
  void AddSession(const Session& session);
  // Call when what the session was charged is final.
  void CountSession(const Session& session);
  void LosePart(const Executor& executor);

 private:
  // These need a trace.
  void Stop();
  void Advance();
  void AnswerBegin();
  void SendAll();
  // Call when the trace is over.
  std::unique_ptr<Trace> Take();

  Accounting* const accounting_;
  OwnTraces* const own_traces_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace gpuloom::scheduler
