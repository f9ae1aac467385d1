// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/executors.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "agent/node/log_signals.h"
#include "agent/node/one_line.h"
#include "agent/scheduler/accounting.h"
#include "agent/scheduler/executor_launcher.h"
#include "agent/scheduler/kernel_name.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/memory_grants.h"
#include "agent/scheduler/operator_traces.h"
#include "agent/scheduler/own_traces.h"
#include "agent/scheduler/session_addresses.h"
#include "agent/scheduler/sessions.h"
#include "agent/scheduler/spare_executors.h"
#include "agent/scheduler/trust_domains.h"
#include "agent/scheduler/turns.h"
#include "proto/channel/socket.h"
#include "proto/cuda/errors.h"

namespace gpuloom::scheduler {
namespace {

// Room for the "…" that OneLine may append to a text it cuts, and for the terminating zero.
constexpr size_t kEllipsisBytes = sizeof("…");

// "CUDA_ERROR_ILLEGAL_ADDRESS (700)", made from the number that an executor sent.
std::string ErrorOf(uint32_t result_untrusted) {
  const char* const name = ErrorName(static_cast<CUresult>(result_untrusted));
  return std::string(name == nullptr ? "CUresult" : name) + " (" +
         std::to_string(result_untrusted) + ")";
}

}  // namespace

// The executor that new sessions of the domain go to, started if there is none. After executors
// that could not be started or did not become ready the domain waits (StartDelay) and is told why: a tenant that connects
// again and again must not start processes without end.
Executor* Executors::ForDomain(const std::string& domain, std::string* error) {
  if (port_->shutting_down()) {
    *error = "scheduler: this GPU's scheduler is ending";
    return nullptr;
  }
  const auto existing = registry_.serving.find(domain);
  if (existing != registry_.serving.end()) return existing->second;

  DomainHistory& history = HistoryOf(domain);
  const auto now = EventLoop::Clock::now();
  if (now < history.next_start) {
    *error =
        "scheduler: the executor of domain " + domain + " failed to start " +
        std::to_string(history.failures) + " times (" + history.last_reason +
        "); the next attempt is in " +
        std::to_string(std::chrono::ceil<std::chrono::seconds>(history.next_start - now).count()) +
        " s";
    return nullptr;
  }
  Executor* executor = called_.spare_executors->Take(domain, now);
  if (executor == nullptr) {
    executor = Start(domain, error);
  } else if (executor->state == Executor::State::kReady) {
    BeginServing(executor);
  }
  if (executor != nullptr) {
    ++history.counts.started;
    registry_.serving[domain] = executor;
  }
  return executor;
}

Executor* Executors::Start(const std::string& domain, std::string* error) {
  auto owned = std::make_unique<Executor>();
  Executor* executor = owned.get();
  executor->id = registry_.NextId();
  executor->domain = domain;
  channel::UniqueFd ours, theirs;
  bool started = channel::MakePair(SOCK_SEQPACKET, &ours, &theirs);
  if (!started) {
    *error = std::string("scheduler: cannot make a socket pair: ") + strerror(errno);
  } else {
    started = called_.launcher->Start(executor, theirs.get(), error);
  }
  if (!started) {
    NoteFailedStart(domain, *error);
    LogFor(&HistoryOf(domain).lines, LogLevel::kError, *error);
    return nullptr;
  }
  const uint64_t id = executor->id;
  // The handlers hold the id, not the pointer: they may run when the executor has gone from
  // everywhere but the table.
  executor->peer = std::make_unique<Peer>(
      loop_, std::move(ours),
      [this, id](control::Incoming& in) { on_message_(registry_.executors.at(id).get(), in); },
      [this, id](const std::string& reason) {
        Lose(registry_.executors.at(id).get(), End::kAsk,
             reason == Peer::kHungUp ? "it exited unasked; its last lines in scheduler.log say why"
                                     : reason);
      });
  executor->peer->ExpectDescriptors(control::MostDescriptors(control::Route::kExecutorSays));
  // Covers the driver's start and the context. One that hangs there says where (SIGABRT).
  executor->deadline = loop_->After(options_.start_timeout, [this, id] {
    Lose(registry_.executors.at(id).get(), End::kAbort, "was not ready in time");
  });
  LogFor(&HistoryOf(domain).lines, LogLevel::kInfo, executor->Label() + " started");
  ++counts_.started;
  registry_.executors.emplace(id, std::move(owned));
  return executor;
}

DomainHistory& Executors::HistoryOf(const std::string& domain) {
  return called_.trust_domains->book()->Of(domain);
}

// From now on the domain waits (ForDomain), whether there was a process or not.
void Executors::NoteFailedStart(const std::string& domain, const std::string& reason) {
  DomainHistory& history = HistoryOf(domain);
  ++history.failures;
  ++history.counts.failed;
  ++counts_.failed;
  history.last_reason = reason;
  history.next_start = EventLoop::Clock::now() + StartDelay(history.failures);
}

void Executors::On(Executor* executor, const control::RefusedCalls&, control::Incoming& in) {
  // An executor that is ready has tenants, so its descriptors are no longer trusted.
  if (executor->state != Executor::State::kStarting || executor->refused_calls != nullptr ||
      !IsRefusedCallsDescriptor(in.fds[0].get())) {
    Lose(executor, End::kKill, "sent a descriptor that nobody asked for");
    return;
  }
  executor->refused_calls =
      std::make_unique<RefusedCalls>(loop_, std::move(in.fds[0]), executor->Label());
}

// The last message that may carry descriptors: from here on tenants can take the executor over.
void Executors::On(Executor* executor, const control::ExecutorReady& message, control::Incoming&) {
  if (executor->state != Executor::State::kStarting) return;
  executor->peer->ExpectDescriptors(0);
  if (message.ok == 0) {
    executor->steps_down =
        message.driver_failed != 0 &&
        called_.launcher->NoteDriverFailed(*executor, control::TextOf(message.message));
    Lose(executor, End::kAsk, control::TextOf(message.message));
    return;
  }
  executor->state = Executor::State::kReady;
  executor->was_ready = true;
  executor->deadline.Cancel();
  // Untrusted, but only passed on to its own tenants.
  executor->priorities =
      StreamPriorities{message.stream_priority_least, message.stream_priority_greatest};
  executor->version =
      OneLine(control::TextOf(message.version), sizeof(message.version) - kEllipsisBytes);
  executor->cupti = OneLine(control::TextOf(message.cupti), sizeof(message.cupti) - kEllipsisBytes);
  executor->has_cupti = message.has_cupti != 0;
  // Whatever it did before, it starts: the back-off begins anew.
  HistoryOf(executor->domain).failures = 0;
  LogFor(&HistoryOf(executor->domain).lines, LogLevel::kInfo, executor->Label() + " is ready");
  called_.launcher->NoteReady(*executor);
  if (LogsMore()) executor->process.Signal(LogSignal(true));
  called_.spare_executors->Schedule();
  if (!executor->is_spare()) BeginServing(executor);
}

void Executors::LetLog() {
  // One that starts may not handle the signal yet, which would end it.
  for (const auto& [id, executor] : registry_.executors) {
    if (executor->state == Executor::State::kReady) executor->process.Signal(LogSignal(LogsMore()));
  }
}

// Its sessions have been waiting for it since Admit.
void Executors::BeginServing(Executor* executor) {
  called_.turns->Begin(executor);
  called_.operator_traces->AddPart(executor);
  // A copy: a session that cannot be added is forgotten in the loop.
  const std::set<uint64_t> waiting = executor->sessions;
  for (const uint64_t id : waiting) {
    Session* session = registry_.FindSession(id, *executor);
    if (session != nullptr && session->state == Session::State::kWaiting) {
      called_.sessions->AddToExecutor(session);
    }
  }
  ArmIdleTimer(executor);
}

void Executors::On(Executor* executor, const control::ExecutorFault& message, control::Incoming&) {
  // An executor may name no session of its own, or a wrong one: then no session, or a neighbour in
  // the same domain, is blamed.
  Session* culprit = registry_.FindSession(message.session_id, *executor);
  if (executor->ends_for_kernel) {
    return Lose(executor, End::kAsk, std::string(executor->reason), kKernelTooLong);
  }
  const std::string what = "device context lost with " + ErrorOf(message.result);
  if (culprit != nullptr) {
    const std::string kernels = NameOfKernels(control::TextOf(message.function), message.launches);
    executor->blamed = culprit->allocation.get();
    Accounting::NoteFault(culprit, control::Fault::kLostDevice,
                          "the device context was lost with " + ErrorOf(message.result) +
                              (message.launches == 0 ? "" : " by " + kernels));
  }
  Lose(executor, End::kAsk,
       what + (culprit == nullptr ? "" : ", most likely by " + culprit->Label()), what);
}

// The one way out for an executor, in whatever state. The first call takes everything from it that
// others can have at once: new sessions, its turn, its traces, its tenants' connections. What its
// processes may still use (memory, addresses, charges) waits for OnReaped. Later calls only press
// harder.
void Executors::Lose(Executor* executor, End end, const std::string& reason,
                     const std::string& for_neighbours) {
  if (executor->state != Executor::State::kDying) {
    StopServing(executor, reason, for_neighbours.empty() ? reason : for_neighbours);
  }
  if (end == End::kAbort) executor->process.Abort();
  if (end == End::kKill) Kill(executor);
}

void Executors::StopServing(Executor* executor, const std::string& reason,
                            const std::string& for_neighbours) {
  executor->state = Executor::State::kDying;
  executor->reason = reason;
  if (const auto it = registry_.serving.find(executor->domain);
      it != registry_.serving.end() && it->second == executor) {
    registry_.serving.erase(it);
  }
  executor->idle.Cancel();
  called_.turns->End(*executor);
  called_.operator_traces->LosePart(*executor);
  called_.own_traces->EndOf(*executor);
  const size_t count = executor->sessions.size();
  const bool loses = count != 0 && !port_->shutting_down();
  LogFor(&HistoryOf(executor->domain).lines, loses ? LogLevel::kError : LogLevel::kInfo,
         executor->Label() + " ends: " + reason +
             (loses ? "; " + std::to_string(count) + " sessions are lost" : ""));
  counts_.lost += loses;
  HistoryOf(executor->domain).counts.lost += loses;
  LoseSessions(executor, reason, for_neighbours);
  // Closing the connection is the request to exit; after exit_grace it is killed.
  executor->peer.reset();
  const uint64_t id = executor->id;
  executor->deadline =
      loop_->After(options_.exit_grace, [this, id] { Kill(registry_.executors.at(id).get()); });
}

void Executors::LoseSessions(Executor* executor, const std::string& reason,
                             const std::string& for_neighbours) {
  // A copy, since ending sessions changes the set.
  const std::set<uint64_t> sessions = executor->sessions;
  // Whether it had one allocation or several decides what its tenants are told: a single one
  // knows whose fault it was.
  std::set<const Allocation*> allocations;
  for (const uint64_t id : sessions) {
    if (Session* session = registry_.FindSession(id, *executor)) {
      allocations.insert(session->allocation.get());
    }
  }
  for (const uint64_t id : sessions) {
    Session* session = registry_.FindSession(id, *executor);
    if (session == nullptr) continue;
    session->deadline.Cancel();
    // The log names whose fault it was; its neighbours need not know.
    const bool is_blamed = session->allocation.get() == executor->blamed;
    if (session->state != Session::State::kEnding && !port_->shutting_down()) {
      Accounting::NoteFault(
          session, control::Fault::kLostExecutor,
          (allocations.size() == 1 ? "its executor ended: "
                                   : "its executor ended, mostly by a neighbour's fault: ") +
              for_neighbours);
    }
    if (session->state == Session::State::kWaiting || session->state == Session::State::kAdding) {
      Refuse(session->tenant.get(), wire::Admission::kDeviceLost,
             "scheduler: the executor of domain " + executor->domain +
                 " ended: " + (is_blamed ? reason : for_neighbours));
    }
    Sessions::Disconnect(session);
    called_.sessions->StopServing(session);
  }
}

void Executors::LoseAll(const std::string& reason) {
  std::vector<Executor*> all;
  for (auto& [id, executor] : registry_.executors) all.push_back(executor.get());
  for (Executor* executor : all) Lose(executor, End::kAsk, reason);
}

void Executors::Kill(Executor* executor) {
  std::string error;
  if (!executor->process.Kill(&error)) LogError(executor->Label() + ": " + error);
}

void Executors::OnChildExit() {
  // Collected first: OnReaped erases from the table. One signal may stand for several children.
  std::vector<std::pair<uint64_t, std::string>> reaped;
  for (auto& [id, executor] : registry_.executors) {
    std::string how;
    if (executor->process.Reap(&how)) reaped.emplace_back(id, how);
  }
  for (const auto& [id, how] : reaped) OnReaped(id, how);
}

// The process is dead, so nothing of it is at the device and all that its sessions held is free.
// The order matters: last words first, then losing it (which does nothing twice), then sessions,
// then what only the executor was charged with.
void Executors::OnReaped(uint64_t executor_id, const std::string& how) {
  Executor* executor = registry_.executors.at(executor_id).get();
  executor->log->Drain();
  // Its last messages, a fault or a session's end, explain more than its exit status.
  if (executor->peer != nullptr) {
    executor->peer->ReceivePending(
        [executor] { return executor->state != Executor::State::kDying; });
  }
  Lose(executor, End::kAsk, how);
  LogFor(&HistoryOf(executor->domain).lines, LogLevel::kInfo, executor->Name() + " " + how);
  const std::set<uint64_t> sessions = executor->sessions;
  for (const uint64_t id : sessions) called_.sessions->Forget(id);
  for (const auto& [id, charge] : executor->charges) {
    charge.allocation->usage.Discharge(charge.size_bytes);
  }
  called_.addresses->FreeArenas(*executor);
  // A start that failed, unless confinement was the reason and the next one is more lenient.
  if (!executor->was_ready && !executor->steps_down && !port_->shutting_down()) {
    NoteFailedStart(executor->domain, executor->reason);
  }
  called_.turns->Forget(*executor);
  called_.launcher->Remove(executor);
  registry_.executors.erase(executor_id);
  called_.memory_grants->NoteRoom();  // the memory of its context is free now
  called_.spare_executors->NoteEnded();
  called_.trust_domains->Forget();
  port_->StopIfUnused();
}

// Called whenever something that keeps an executor alive has gone. The timer is cancelled when a
// session comes.
void Executors::ArmIdleTimer(Executor* executor) {
  // A starting executor is looked at again when it is ready: if it were ended now, it would count
  // as a failed start.
  if (executor->state != Executor::State::kReady || !executor->sessions.empty() ||
      executor->is_spare()) {
    return;
  }
  const uint64_t id = executor->id;
  // The tenant's trace ends within bounds, and looks here again.
  if (called_.own_traces->Uses(*executor) && registry_.HasAllocations(executor->domain)) return;
  auto timeout = options_.idle_timeout;
  const char* why = "idle";
  if (!registry_.HasAllocations(executor->domain)) {
    timeout = std::chrono::milliseconds(0);
    why = "no allocation of its domain is left";
  } else if (executor->was_traced && !called_.operator_traces->active()) {
    // A profiler that was attached may stay in the process and make launches slower; a new executor
    // has none.
    timeout = std::chrono::milliseconds(0);
    why = "idle after a trace";
  }
  executor->idle = loop_->After(
      timeout, [this, id, why] { Lose(registry_.executors.at(id).get(), End::kAsk, why); });
}

}  // namespace gpuloom::scheduler
