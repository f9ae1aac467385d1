// SPDX-License-Identifier: Apache-2.0
// Tenants' sessions (session.h): from an accepted Hello to Welcome, and to the session's end. What a tenant or an
// executor sends is checked before it changes anything, and costs at most its own session or its own domain. A part of
// the scheduler; its thread only. The parts that it calls outlive it.
#pragma once

#include <cstdint>
#include <string>

#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class Accounting;
class MemoryGrants;
class MemoryReclaims;
class OperatorTraces;
class OwnTraces;
class SessionAddresses;

class Sessions : public Part {
 public:
  Sessions(SchedulerPort* port, Accounting* accounting, OwnTraces* own_traces,
           OperatorTraces* operator_traces, MemoryReclaims* memory_reclaims,
           MemoryGrants* memory_grants, SessionAddresses* addresses)
      : Part(port),
        accounting_(accounting),
        own_traces_(own_traces),
        operator_traces_(operator_traces),
        memory_reclaims_(memory_reclaims),
        memory_grants_(memory_grants),
        addresses_(addresses) {}

  // Makes a session of a connection, or refuses it.
  void Admit(const AllocationPtr& allocation, TenantConnection connection);
  // Call when the executor of a session in kWaiting is ready. The session may be gone afterwards.
  void AddToExecutor(Session* session);
  // Ends the session for the tenant at once; the executor drains its work.
  void EndSession(Session* session, const std::string& why);
  // Closes the connection and the doorbell, so the tenant notices at its next look.
  static void Disconnect(Session* session);
  void StopServing(Session* session);
  // Call when nothing holds any part of the session.
  void Forget(uint64_t session_id);

  void On(Executor* executor, const control::SessionReady& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionEnded& message, control::Incoming& in);
  void On(Executor* executor, const control::SessionWaits& message, control::Incoming& in);
  void On(Executor* executor, const control::UnsupportedCall& message, control::Incoming& in);

 private:
  [[nodiscard]] bool Prepare(Session* session, std::string* error);
  void OnTenantEvent(uint64_t session_id);
  void SendWelcome(Session* session, uint32_t multiprocessors);
  void ExpectEnd(Session* session);

  Accounting* const accounting_;
  OwnTraces* const own_traces_;
  OperatorTraces* const operator_traces_;
  MemoryReclaims* const memory_reclaims_;
  MemoryGrants* const memory_grants_;
  SessionAddresses* const addresses_;
};

}  // namespace gpuloom::scheduler
