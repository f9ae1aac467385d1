// SPDX-License-Identifier: Apache-2.0
// Tenants' own traces (own_trace.h): requested on an allocation's socket, allowed by its policy, recorded by its
// executor. Neither the tenant nor the executor is trusted: each can advance only its own trace, and the scheduler
// never blocks on either. A part of the scheduler; its thread only. Owns the traces, each with its tenant's connection
// and its memory; a trace keeps its allocation alive, and names its executor by id, because it may end first.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agent/scheduler/own_trace.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/trace_messages.h"

namespace gpuloom::scheduler {

class OwnTraces : public Part {
 public:
  explicit OwnTraces(SchedulerPort* port) : Part(port) {}

  // Begins the trace that the connection requests, or refuses it.
  void Begin(const AllocationPtr& allocation, TenantConnection connection);
  // Names the session in the traces of its allocation.
  void AddSession(const Session& session);
  // Returns false if the message is about none of this executor's own traces.
  bool OnProgress(const Executor& executor, const control::TraceProgress& message);
  // Whether the executor records for a tenant, or is about to.
  bool Uses(const Executor& executor) const;

  // These leave alone the traces whose tenant has its answer. An executor records one trace at a time, and tenants' own
  // have to make room: GiveWay ends them and refuses others until Resume.
  void GiveWay();
  void Resume() { gives_way_ = false; }
  void EndOf(const Executor& executor);
  // Call when the allocation was removed, or its terms have changed.
  void EndIfNotAllowed(const Allocation& allocation);

 private:
  // Returns why the allocation may not trace itself. If it returns an empty string, it may, and `executor` records.
  std::string WhyNot(const Allocation& allocation, uint32_t time_ms_untrusted,
                     Executor** executor) const;
  void Await(OwnTrace* trace, std::chrono::milliseconds patience);
  void Stop(OwnTrace* trace);
  void Answer(OwnTrace* trace);
  void SendOf(uint64_t id);
  // `why`: the message for the tenant; empty: none.
  void EndTrace(uint64_t id, const std::string& why);
  void EndAll(const std::function<bool(const OwnTrace&)>& which, const std::string& why);

  std::map<uint64_t, std::unique_ptr<OwnTrace>> traces_;
  bool gives_way_ = false;
};

}  // namespace gpuloom::scheduler
