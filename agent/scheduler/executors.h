// SPDX-License-Identifier: Apache-2.0
// Executors (executor.h): started with a domain's first session or before one that is announced, ended after its
// last, lost when they misbehave. What an executor says is untrusted: it may name only its own sessions and their own
// memory. A part of the scheduler; its thread only. The parts that it calls outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "agent/scheduler/domain_book.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class ExecutorLauncher;
class MemoryGrants;
class OperatorTraces;
class OwnTraces;
class SessionAddresses;
class Sessions;
class SpareExecutors;
class TrustDomains;
class Turns;

class Executors : public Part {
 public:
  // Called for each message of an executor.
  using OnMessage = std::function<void(Executor*, control::Incoming&)>;
  // The parts that are called.
  struct Called {
    ExecutorLauncher* launcher;
    Turns* turns;
    TrustDomains* trust_domains;
    OwnTraces* own_traces;
    OperatorTraces* operator_traces;
    SpareExecutors* spare_executors;
    MemoryGrants* memory_grants;
    SessionAddresses* addresses;
    Sessions* sessions;
  };

  Executors(SchedulerPort* port, const Called& called, OnMessage on_message)
      : Part(port), called_(called), on_message_(std::move(on_message)) {}

  // See SchedulerPort::ExecutorFor, LoseExecutor, ArmIdleTimer.
  [[nodiscard]] Executor* ForDomain(const std::string& domain, std::string* error);
  void Lose(Executor* executor, End end, const std::string& reason,
            const std::string& for_neighbours = {});
  void ArmIdleTimer(Executor* executor);
  void LoseAll(const std::string& reason);

  // Not yet the domain's: ForDomain puts it into Registry::serving, and a spare one belongs to none. Returns nullptr with
  // a message, which has been logged.
  [[nodiscard]] Executor* Start(const std::string& domain, std::string* error);
  // Called on SIGCHLD.
  void OnChildExit();
  // Call when LogsMore has changed: executors follow it, at once or when they are ready.
  void LetLog();

  void On(Executor* executor, const control::RefusedCalls& message, control::Incoming& in);
  void On(Executor* executor, const control::ExecutorReady& message, control::Incoming& in);
  void On(Executor* executor, const control::ExecutorFault& message, control::Incoming& in);

  // Of all domains, and of none.
  const ExecutorCounts& counts() const { return counts_; }

 private:
  DomainHistory& HistoryOf(const std::string& domain);
  void NoteFailedStart(const std::string& domain, const std::string& reason);
  // It is ready and has its domain.
  void BeginServing(Executor* executor);
  void StopServing(Executor* executor, const std::string& reason,
                   const std::string& for_neighbours);
  // Ends its sessions for their tenants. What they hold waits for OnReaped.
  void LoseSessions(Executor* executor, const std::string& reason,
                    const std::string& for_neighbours);
  void Kill(Executor* executor);
  void OnReaped(uint64_t executor_id, const std::string& how);

  const Called called_;
  const OnMessage on_message_;
  ExecutorCounts counts_;
};

}  // namespace gpuloom::scheduler
