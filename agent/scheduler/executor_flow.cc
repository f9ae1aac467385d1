// SPDX-License-Identifier: Apache-2.0
// Executors: started with a domain's first session or before one that is announced, ended after its
// last, lost when they misbehave.
// What an executor says is untrusted: it may name only its own sessions and their own memory.
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "agent/node/gpu_uuid.h"
#include "agent/node/log_signals.h"
#include "agent/node/one_line.h"
#include "agent/scheduler/kernel_name.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "proto/channel/socket.h"
#include "proto/control/dispatch.h"
#include "proto/cuda/errors.h"
#include "proto/wire/fatal.h"

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
Executor* Scheduler::ExecutorFor(const std::string& domain, std::string* error) {
  if (shutting_down_) {
    *error = "scheduler: this GPU's scheduler is ending";
    return nullptr;
  }
  const auto existing = domains_.find(domain);
  if (existing != domains_.end()) return existing->second;

  DomainHistory& history = book_.Of(domain);
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
  Executor* executor = TakeSpare(domain, now);
  if (executor == nullptr) executor = StartExecutor(domain, error);
  if (executor != nullptr) {
    ++history.counts.started;
    domains_[domain] = executor;
  }
  return executor;
}

// Not yet the domain's: ExecutorFor puts it into `domains_`, and a spare one belongs to none.
Executor* Scheduler::StartExecutor(const std::string& domain, std::string* error) {
  auto owned = std::make_unique<Executor>();
  Executor* executor = owned.get();
  executor->id = ++last_id_;
  executor->domain = domain;
  channel::UniqueFd ours, theirs;
  bool started = channel::MakePair(SOCK_SEQPACKET, &ours, &theirs);
  if (!started) {
    *error = std::string("scheduler: cannot make a socket pair: ") + strerror(errno);
  } else {
    started = StartProcess(executor, theirs.get(), error);
  }
  if (!started) {
    NoteFailedStart(domain, *error);
    LogFor(&book_.Of(domain).lines, LogLevel::kError, *error);
    return nullptr;
  }
  const uint64_t id = executor->id;
  // The handlers hold the id, not the pointer: they may run when the executor has gone from
  // everywhere but the table.
  executor->peer = std::make_unique<Peer>(
      loop_, std::move(ours), [this, id](control::Incoming& in) { OnExecutorMessage(id, in); },
      [this, id](const std::string& reason) {
        LoseExecutor(executors_.at(id).get(), End::kAsk,
                     reason == Peer::kHungUp
                         ? "it exited unasked; its last lines in scheduler.log say why"
                         : reason);
      });
  executor->peer->ExpectDescriptors(control::MostDescriptors(control::Route::kExecutorSays));
  // Covers the driver's start and the context. One that hangs there says where (SIGABRT).
  executor->deadline = loop_->After(options_.start_timeout, [this, id] {
    LoseExecutor(executors_.at(id).get(), End::kAbort, "was not ready in time");
  });
  LogFor(&book_.Of(domain).lines, LogLevel::kInfo, executor->Label() + " started");
  ++executor_counts_.started;
  executors_.emplace(id, std::move(owned));
  return executor;
}

// From now on the domain waits (ExecutorFor), whether there was a process or not.
void Scheduler::NoteFailedStart(const std::string& domain, const std::string& reason) {
  DomainHistory& history = book_.Of(domain);
  ++history.failures;
  ++history.counts.failed;
  ++executor_counts_.failed;
  history.last_reason = reason;
  history.next_start = EventLoop::Clock::now() + StartDelay(history.failures);
}

// What an executor gets on its command line is all that it may know before it is confined; its
// domain's name only, no tenant's. It inherits its end of the control socket, the lock of its user,
// and a pipe for its log.
bool Scheduler::StartProcess(Executor* executor, int control, std::string* error) {
  if (!options_.executor_users.Take(&executor->user, error)) return false;
  executor->folder = folders_.NewPath();
  executor->log = std::make_unique<ExecutorLog>(loop_);
  if (!executor->log->valid()) {
    *error = std::string("scheduler: no pipe for an executor's log: ") + strerror(errno);
    return false;
  }
  std::vector<std::string> command = {
      options_.executor_path,
      "--gpu",
      FormatUuid(device_->facts().uuid),
      "--cuda-library",
      options_.cuda_library,
      "--log-level",
      options_.executor_log_level,
      "--folder",
      executor->folder,
      "--control-version",
      control::VersionText(control::kControlMajor, control::kControlMinor),
      "--tell-refused-calls"};
  if (!executor->is_spare()) command.insert(command.end(), {"--domain", executor->domain});
  executor->lenient = drivers_need_leniency_;
  if (executor->lenient) command.push_back("--lenient");
  if (options_.executor_memory_bytes != 0) {
    command.insert(command.end(),
                   {"--memory-limit", std::to_string(options_.executor_memory_bytes)});
  }
  // The lock is inherited, so the number stays taken while any process of the executor lives, even
  // if this scheduler dies.
  std::vector<int> descriptors = {control};
  if (executor->user.id != 0) {
    command.insert(command.end(), {"--user", std::to_string(executor->user.id)});
    descriptors.push_back(executor->user.lock.get());
  }
  return executor->process.Start(command, executor->log->TakeWriter().get(), descriptors, error);
}

void Scheduler::OnExecutorMessage(uint64_t executor_id, control::Incoming& in) {
  Executor* executor = executors_.at(executor_id).get();
  const control::Judgement judged = control::Dispatch<control::Route::kExecutorSays>(
      in, [&](const auto& message) { On(executor, message, in); });
  // This never happens by accident: both come from one release, or have agreed on a version.
  if (judged != control::Judgement::kHandled) {
    LoseExecutor(executor, End::kKill, "sent a message of unknown type or size");
  }
}

void Scheduler::On(Executor* executor, const control::RefusedCalls&, control::Incoming& in) {
  // An executor that is ready has tenants, so its descriptors are no longer trusted.
  if (executor->state != Executor::State::kStarting || executor->refused_calls != nullptr ||
      !IsRefusedCallsDescriptor(in.fds[0].get())) {
    LoseExecutor(executor, End::kKill, "sent a descriptor that nobody asked for");
    return;
  }
  executor->refused_calls =
      std::make_unique<RefusedCalls>(loop_, std::move(in.fds[0]), executor->Label());
}

// The last message that may carry descriptors: from here on tenants can take the executor over.
void Scheduler::On(Executor* executor, const control::ExecutorReady& message, control::Incoming&) {
  if (executor->state != Executor::State::kStarting) return;
  executor->peer->ExpectDescriptors(0);
  if (message.ok == 0) {
    if (message.driver_failed != 0 && !executor->lenient) {
      // Confinement may be the reason; if it is not, the next start will fail, too.
      executor->steps_down = true;
      if (!std::exchange(drivers_need_leniency_, true)) {
        LogWarning(
            "the driver does not start in a fully confined executor (" +
            control::TextOf(message.message) +
            "): from now on executors have no list of files and a shorter one of system calls "
            "(docs/design/taken-over-executor.md)");
      }
    }
    LoseExecutor(executor, End::kAsk, control::TextOf(message.message));
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
  book_.Of(executor->domain).failures = 0;
  LogFor(&book_.Of(executor->domain).lines, LogLevel::kInfo, executor->Label() + " is ready");
  if (LogsMore()) executor->process.Signal(LogSignal(true));
  LookAtSpares();
  if (!executor->is_spare()) BeginServing(executor);
}

void Scheduler::LetExecutorsLog() {
  // One that starts may not handle the signal yet, which would end it.
  for (const auto& [id, executor] : executors_) {
    if (executor->state == Executor::State::kReady) executor->process.Signal(LogSignal(LogsMore()));
  }
}

// Its sessions have been waiting for it since Admit.
void Scheduler::BeginServing(Executor* executor) {
  turns_.Begin(executor);
  AddTracePart(executor);
  // A copy: a session that cannot be added is forgotten in the loop.
  const std::set<uint64_t> waiting = executor->sessions;
  for (const uint64_t id : waiting) {
    Session* session = FindSession(id, *executor);
    if (session != nullptr && session->state == Session::State::kWaiting) AddToExecutor(session);
  }
  LookIdle(executor);
}

// Late or wrong answers are ignored: only a session that is being added can be welcomed, or
// refused.
void Scheduler::On(Executor* executor, const control::SessionReady& message, control::Incoming&) {
  Session* session = FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  if (message.ok != 0) {
    if (session->state == Session::State::kAdding) SendWelcome(session, message.multiprocessors);
    return;
  }
  if (session->state == Session::State::kEnding) {  // the tenant left while it was being added
    ForgetSession(session->id);
    return;
  }
  if (session->state != Session::State::kAdding) return;
  const std::string reason = control::TextOf(message.message);
  LogFor(&session->allocation->lines, LogLevel::kWarning,
         session->Label() + " was refused by its executor: " + reason);
  Refuse(session->tenant.get(), wire::Admission::kDeviceLost, reason);
  ForgetSession(session->id);
}

void Scheduler::On(Executor* executor, const control::SessionEnded& message, control::Incoming&) {
  Session* session = FindSession(message.session_id, *executor);
  if (session == nullptr || session->state == Session::State::kWaiting) return;
  Raise(session, message.kernels_launched, message.time, message.work);
  if (message.fatal != 0) {
    const std::string reason(wire::FatalText(static_cast<wire::Fatal>(message.fatal)));
    NoteFault(session, control::Fault::kBrokeProtocol, reason);
    LogFor(&session->allocation->fault_lines, LogLevel::kWarning,
           session->Label() + " was ended: wire: " + reason);
  }
  // Its work is still at the device, in a context that others use: nothing that it had can be given
  // to anybody before the context is gone.
  if (message.drained == 0) {
    executor->blamed = session->allocation.get();
    NoteFault(session, control::Fault::kDidNotDrain, "its work on the device did not end in time");
    LogFor(&session->allocation->fault_lines, LogLevel::kWarning,
           session->Label() + " did not drain in time: it costs domain " + executor->domain +
               " its executor");
    LoseExecutor(executor, End::kKill, session->Label() + " did not drain",
                 "work on the device did not end in time");
    return;
  }
  ForgetSession(session->id);
}

void Scheduler::On(Executor* executor, const control::SessionWaits& message, control::Incoming&) {
  Session* session = FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  // The session ended by itself before we were notified, and waits for these answers, too.
  StopWaiting(session->id);
  if (session->state != Session::State::kEnding) return;
  // The executor repeats this message.
  if (!std::exchange(session->waits_for_others, true)) {
    LogFor(&session->allocation->lines, LogLevel::kInfo,
           session->Label() + " waits for others of domain " + executor->domain + " to end");
  }
  ExpectEnd(session);
}

void Scheduler::On(Executor* executor, const control::ArenaReturned& message, control::Incoming&) {
  const auto it = executor->arenas.find(message.session_id);
  if (it != executor->arenas.end()) {
    // The executor has unmapped the arena, maybe long after the session's end.
    it->second.allocation->host_addresses.Free(it->second.range, &host_window_);
    executor->arenas.erase(it);
  } else if (Session* session = FindSession(message.session_id, *executor)) {
    session->arena_returned = true;  // the executor could not take the session
  }
}

void Scheduler::On(Executor* executor, const control::UnsupportedCall& message,
                   control::Incoming&) {
  Session* session = FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  const std::string name = control::TextOf(message.name);
  if (session->allocation->NoteUnsupported(name)) {
    LogInfo(session->Label() + " asked CUDA for " + session->allocation->unsupported.back() +
            ", which is not supported");
  }
}

void Scheduler::On(Executor* executor, const control::ExecutorFault& message, control::Incoming&) {
  // May name none of its own sessions, or a false one: then nobody, or a neighbour of the same
  // domain, is blamed.
  Session* culprit = FindSession(message.session_id, *executor);
  if (executor->ends_for_kernel) {
    return LoseExecutor(executor, End::kAsk, std::string(executor->reason), kKernelTooLong);
  }
  const std::string what = "device context lost with " + ErrorOf(message.result);
  if (culprit != nullptr) {
    const std::string kernels = NameOfKernels(control::TextOf(message.function), message.launches);
    executor->blamed = culprit->allocation.get();
    NoteFault(culprit, control::Fault::kLostDevice,
              "the device context was lost with " + ErrorOf(message.result) +
                  (message.launches == 0 ? "" : " by " + kernels));
  }
  LoseExecutor(executor, End::kAsk,
               what + (culprit == nullptr ? "" : ", most likely by " + culprit->Label()), what);
}

// The one way out for an executor, in whatever state. The first call takes everything from it that
// others can have at once: new sessions, its turn, its traces, its tenants' connections. What its
// processes may still use (memory, addresses, charges) waits for OnReaped. Later calls only press
// harder.
void Scheduler::LoseExecutor(Executor* executor, End end, const std::string& reason,
                             std::string for_neighbours) {
  if (for_neighbours.empty()) for_neighbours = reason;
  if (executor->state != Executor::State::kDying) {
    executor->state = Executor::State::kDying;
    executor->reason = reason;
    if (const auto it = domains_.find(executor->domain);
        it != domains_.end() && it->second == executor) {
      domains_.erase(it);
    }
    executor->idle.Cancel();
    turns_.End(*executor);
    LoseTracePart(*executor);
    EndOwnTraces([&](const OwnTrace& trace) { return trace.executor_id == executor->id; },
                 "the executor has ended: its programs must be started again");
    // A copy, since ending sessions changes the set.
    const std::set<uint64_t> sessions = executor->sessions;
    const bool loses = !sessions.empty() && !shutting_down_;
    LogFor(&book_.Of(executor->domain).lines, loses ? LogLevel::kError : LogLevel::kInfo,
           executor->Label() + " ends: " + reason +
               (loses ? "; " + std::to_string(sessions.size()) + " sessions are lost" : ""));
    executor_counts_.lost += loses;
    book_.Of(executor->domain).counts.lost += loses;
    // Whether it had one allocation or several decides what its tenants are told: a single one
    // knows whose fault it was.
    std::set<const Allocation*> allocations;
    for (const uint64_t id : sessions) {
      if (Session* session = FindSession(id, *executor)) {
        allocations.insert(session->allocation.get());
      }
    }
    for (const uint64_t id : sessions) {
      Session* session = FindSession(id, *executor);
      if (session == nullptr) continue;
      session->deadline.Cancel();
      // The log names whose fault it was; its neighbours need not know.
      const bool is_blamed = session->allocation.get() == executor->blamed;
      if (session->state != Session::State::kEnding && !shutting_down_) {
        NoteFault(
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
      // Closes the connection and the doorbell, so the tenant notices at its next look.
      session->tenant_watch.End();
      session->tenant.Reset();
      session->regions = SessionRegions{};
      StopServing(session);
    }
    // Closing the connection is the request to exit; after exit_grace it is killed.
    executor->peer.reset();
    const uint64_t id = executor->id;
    executor->deadline =
        loop_->After(options_.exit_grace, [this, id] { KillExecutor(executors_.at(id).get()); });
  }
  if (end == End::kAbort) executor->process.Abort();
  if (end == End::kKill) KillExecutor(executor);
}

void Scheduler::KillExecutor(Executor* executor) {
  std::string error;
  if (!executor->process.Kill(&error)) LogError(executor->Label() + ": " + error);
}

// The process is dead, so nothing of it is at the device and all that its sessions held is free.
// The order matters: last words first, then losing it (which does nothing twice), then sessions,
// then what only the executor was charged with.
void Scheduler::OnReaped(uint64_t executor_id, const std::string& how) {
  Executor* executor = executors_.at(executor_id).get();
  executor->log->Drain();
  // Its last messages, a fault or a session's end, explain more than its exit status.
  if (executor->peer != nullptr) {
    executor->peer->ReceivePending(
        [executor] { return executor->state != Executor::State::kDying; });
  }
  LoseExecutor(executor, End::kAsk, how);
  LogFor(&book_.Of(executor->domain).lines, LogLevel::kInfo, executor->Name() + " " + how);
  const std::set<uint64_t> sessions = executor->sessions;
  for (const uint64_t id : sessions) ForgetSession(id);
  for (const auto& [id, charge] : executor->charges) {
    charge.allocation->usage.Discharge(charge.size_bytes);
  }
  for (const auto& [id, arena] : executor->arenas) {
    arena.allocation->host_addresses.Free(arena.range, &host_window_);
  }
  // A start that failed, unless confinement was the reason and the next one is more lenient.
  if (!executor->was_ready && !executor->steps_down && !shutting_down_) {
    NoteFailedStart(executor->domain, executor->reason);
  }
  turns_.Forget(*executor);
  folders_.Remove(executor->folder, std::move(executor->user));
  executors_.erase(executor_id);
  NoteRoom();  // the memory of its context is free now
  NoteSpareEnded();
  ForgetDomains();
  LookUnused();
}

bool Scheduler::HasAllocations(const std::string& domain) const {
  return std::any_of(allocations_.begin(), allocations_.end(), [&](const auto& entry) {
    return entry.second.allocation->bound && entry.second.allocation->trust_domain == domain;
  });
}

// Called whenever something that keeps an executor alive has gone. The timer is cancelled when a
// session comes.
void Scheduler::LookIdle(Executor* executor) {
  // A starting executor is looked at again when it is ready: if it were ended now, it would count
  // as a failed start.
  if (executor->state != Executor::State::kReady || !executor->sessions.empty() ||
      executor->is_spare()) {
    return;
  }
  const uint64_t id = executor->id;
  // The tenant's trace ends within bounds, and looks here again.
  if (TracesItself(*executor) && HasAllocations(executor->domain)) return;
  auto timeout = options_.idle_timeout;
  const char* why = "idle";
  if (!HasAllocations(executor->domain)) {
    timeout = std::chrono::milliseconds(0);
    why = "no allocation of its domain is left";
  } else if (executor->was_traced && trace_ == nullptr) {
    // A profiler that was attached may stay in the process and make launches slower; a new executor
    // has none.
    timeout = std::chrono::milliseconds(0);
    why = "idle after a trace";
  }
  executor->idle = loop_->After(
      timeout, [this, id, why] { LoseExecutor(executors_.at(id).get(), End::kAsk, why); });
}

}  // namespace gpuloom::scheduler
