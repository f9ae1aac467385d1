// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/sessions.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "agent/scheduler/accounting.h"
#include "agent/scheduler/device.h"
#include "agent/scheduler/device_snapshot.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/memory_grants.h"
#include "agent/scheduler/memory_reclaims.h"
#include "agent/scheduler/operator_traces.h"
#include "agent/scheduler/own_traces.h"
#include "agent/scheduler/session_addresses.h"
#include "agent/scheduler/time_usage.h"
#include "proto/channel/socket.h"
#include "proto/wire/fatal.h"
#include "proto/wire/regions.h"

namespace gpuloom::scheduler {

// Makes a session of a connection, or refuses it. What can refuse it comes in the order of its
// cost; each refusal is sent to the peer, counted, and logged within the allocation's budget.
void Sessions::Admit(const AllocationPtr& allocation, TenantConnection connection) {
  const auto refuse = [&](wire::Admission admission, const std::string& message) {
    ++allocation->sessions_refused;
    allocation->latest_refusal = message;
    LogFor(&allocation->refusal_lines, LogLevel::kWarning,
           allocation->Label() + ": refused " + ProcessText(connection.pid) + ": " + message);
    Refuse(connection.socket.get(), admission, message);
  };
  if (!connection.hello.token.empty()) {
    refuse(wire::Admission::kRefused, "taking a session up again is not supported yet");
    return;
  }
  if (!allocation->bound) {
    refuse(wire::Admission::kRefused,
           "allocation not resolved yet: the node's agent has not said which pod this is; see the "
           "gpuloom-agent log on this node");
    return;
  }
  if (allocation->session_count >= kMaxSessionsPerAllocation) {
    refuse(wire::Admission::kRefused, allocation->Label() + " has " +
                                          std::to_string(kMaxSessionsPerAllocation) +
                                          " processes on this GPU already");
    return;
  }
  std::string error;
  Executor* executor = port_->ExecutorFor(allocation->trust_domain, &error);
  if (executor == nullptr) {
    refuse(wire::Admission::kDeviceLost, error);
    return;
  }
  auto owned = std::make_unique<Session>();
  Session* session = owned.get();
  session->id = registry_.NextId();
  session->allocation = allocation;
  session->executor = executor;
  session->tenant_pid = connection.pid;
  // Both are the tenant's word, and used for its own allocation's questions only (queries.h).
  session->own_pid_untrusted = connection.hello.pid;
  session->pid_namespace_untrusted = connection.hello.pid_namespace;
  if (!Prepare(session, &error)) {
    refuse(wire::Admission::kRefused, error);
    port_->ArmIdleTimer(executor);
    return;
  }
  session->tenant = std::move(connection.socket);
  const uint64_t id = session->id;
  // EPOLLRDHUP: a tenant that has only shut its side down is gone, too.
  session->tenant_watch = loop_->WatchFd(session->tenant.get(), EPOLLIN | EPOLLRDHUP,
                                         [this, id](uint32_t) { OnTenantEvent(id); });
  registry_.sessions.emplace(id, std::move(owned));
  executor->sessions.insert(id);
  executor->idle.Cancel();
  ++allocation->session_count;
  // Otherwise BeginServing adds it when the executor is ready.
  if (executor->state == Executor::State::kReady) AddToExecutor(session);
}

// All that a session needs of the node is made or nothing is kept. The scheduler makes the regions,
// sealed, so that neither side can shrink what the other has mapped.
bool Sessions::Prepare(Session* session, std::string* error) {
  if (getrandom(&session->token, sizeof(session->token), 0) != sizeof(session->token)) {
    *error = std::string("scheduler: the kernel gives no random bytes: ") + strerror(errno);
    return false;
  }
  if (!addresses_->Take(session, error)) return false;
  SessionRegions& regions = session->regions;
  regions.command = channel::MakeSealedMemory("gpuloom-command", sizeof(wire::CommandRegion));
  // Sealed against new writers only in SendWelcome: the executor must map it for writing before.
  regions.completion =
      channel::MakeFixedSizeMemory("gpuloom-completion", sizeof(wire::CompletionRegion));
  regions.arena = channel::MakeSealedMemory("gpuloom-arena", session->host_range.size_bytes);
  if (!regions.command.valid() || !regions.completion.valid() || !regions.arena.valid() ||
      !channel::MakePair(SOCK_STREAM, &regions.tenant_doorbell, &regions.executor_doorbell)) {
    *error = std::string("scheduler: cannot make shared memory: ") + strerror(errno);
    StopServing(session);
    addresses_->Return(*session);
    return false;
  }
  return true;
}

void Sessions::AddToExecutor(Session* session) {
  control::AddSession add{};
  add.session_id = session->id;
  add.device_range_begin = session->device_range.begin;
  add.device_range_bytes = session->device_range.size_bytes;
  add.host_range_begin = session->host_range.begin;
  add.host_range_bytes = session->host_range.size_bytes;
  add.pinned_limit_bytes = session->pinned_limit_bytes;
  add.memory_quota_bytes = session->allocation->usage.quota_bytes();
  add.device_own_bytes = session->device_own_bytes;
  add.drain_timeout_ms = static_cast<uint32_t>(options_.drain_timeout.count());
  control::SetText(add.label, session->allocation->Label().c_str());
  add.allocation_id = session->allocation->id;
  add.namespace_id = *session->allocation->namespace_id;
  add.slots = session->allocation->slots;
  add.shares = session->allocation->shares;
  add.held = session->allocation->suspended ? 1 : 0;
  add.partition = session->allocation->partition;
  add.kernels = session->allocation->kernels;
  add.rescue_after_ms = session->allocation->rescue_after_ms;
  add.scheduler_minor = control::kControlMinor;

  SessionRegions& regions = session->regions;
  // The executor gets the command region read-only, for the tenant is its only writer; the tenant
  // gets the completions so.
  std::vector<channel::UniqueFd> fds(control::kSessionFds);
  fds[control::kSessionCommandFd] = channel::ReopenReadOnly(regions.command.get());
  fds[control::kSessionCompletionFd].Reset(dup(regions.completion.get()));
  fds[control::kSessionArenaFd].Reset(dup(regions.arena.get()));
  fds[control::kSessionDoorbellFd] = std::move(regions.executor_doorbell);
  for (const channel::UniqueFd& fd : fds) {
    if (fd.valid()) continue;
    const std::string reason =
        std::string("scheduler: cannot hand over memory: ") + strerror(errno);
    Refuse(session->tenant.get(), wire::Admission::kRefused, reason);
    LogError(session->Label() + ": " + reason);
    Forget(session->id);
    return;
  }
  session->state = Session::State::kAdding;
  // From this message on it may have the arena mapped, until it says otherwise.
  session->arena_returned = false;
  operator_traces_->AddSession(*session);
  own_traces_->AddSession(*session);
  session->executor->peer->Send(0, add, std::move(fds));
  const uint64_t id = session->id;
  session->deadline = loop_->After(options_.start_timeout, [this, id] {
    Session* late = registry_.sessions.at(id).get();
    port_->LoseExecutor(late->executor, End::kAbort, "did not take a new session in time");
  });
}

void Sessions::SendWelcome(Session* session, uint32_t multiprocessors) {
  session->deadline.Cancel();
  SessionRegions& regions = session->regions;
  // The executor has mapped it; from here on nobody else can write what it publishes.
  // Not fatal: without the seal a tenant could only deceive itself. A hostile executor can see to that each time, by
  // seals of its own.
  if (!channel::SealWriters(regions.completion.get())) {
    const std::string why = strerror(errno);
    LogFor(&session->allocation->lines, LogLevel::kWarning,
           session->Label() + ": cannot seal the completion region: " + why +
               "; a tenant could forge its own completions");
  }
  const channel::UniqueFd completion = channel::ReopenReadOnly(regions.completion.get());

  wire::Welcome welcome{};
  welcome.magic = wire::kHelloMagic;
  welcome.major = wire::kWireMajor;
  welcome.minor = wire::kWireMinor;
  welcome.admission = wire::Admission::kAccepted;
  welcome.session_id = session->id;
  welcome.token = session->token;
  welcome.device_range_begin = session->device_range.begin;
  welcome.device_range_bytes = session->device_range.size_bytes;
  welcome.host_range_begin = session->host_range.begin;
  welcome.host_range_bytes = session->host_range.size_bytes;
  welcome.pinned_limit_bytes = session->pinned_limit_bytes;
  welcome.device = MakeSnapshot(device_->facts(), session->allocation->usage.quota_bytes(),
                                session->executor->priorities, multiprocessors);
  int fds[wire::kWelcomeFds];
  fds[wire::kCommandRegionFd] = regions.command.get();
  fds[wire::kCompletionRegionFd] = completion.get();
  fds[wire::kArenaFd] = regions.arena.get();
  fds[wire::kDoorbellFd] = regions.tenant_doorbell.get();
  if (!completion.valid() || !channel::SendMessage(session->tenant.get(), &welcome, sizeof(welcome),
                                                   fds, wire::kWelcomeFds, MSG_DONTWAIT)) {
    EndSession(session, std::string("cannot be welcomed: ") + strerror(errno));
    return;
  }
  session->state = Session::State::kLive;
  ++session->allocation->sessions_begun;
  session->regions = SessionRegions{};  // both sides have theirs
  LogFor(&session->allocation->lines, LogLevel::kInfo,
         session->Label() + " began in domain " + session->executor->domain);
}

void Sessions::OnTenantEvent(uint64_t session_id) {
  const auto it = registry_.sessions.find(session_id);
  if (it == registry_.sessions.end()) return;
  // A tenant sends nothing more on this connection, so any message ends the session.
  uint8_t byte;
  const ptrdiff_t size = channel::ReceiveMessage(it->second->tenant.get(), &byte, sizeof(byte),
                                                 nullptr, 0, nullptr, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return;
  // ECONNRESET is what ReceiveMessage says of a closed connection.
  const bool is_gone = size < 0 && errno == ECONNRESET;
  // Programs end when their executor does. The executor's end is then the reason, so look again when it has been
  // noticed.
  const Peer* const executor = it->second->executor->peer.get();
  if (is_gone && executor != nullptr && executor->HasHungUp()) return;
  EndSession(it->second.get(), is_gone ? "tenant is gone" : "tenant spoke out of turn");
}

void Sessions::EndSession(Session* session, const std::string& why) {
  if (session->state == Session::State::kEnding) return;
  LogFor(&session->allocation->lines, LogLevel::kInfo, session->Label() + " ends: " + why);
  // Closing comes first: the tenant sees at once that it has ended, however long its work still
  // runs.
  Disconnect(session);
  // The executor does not know of it yet, so nothing has to be drained.
  if (session->state == Session::State::kWaiting) {
    Forget(session->id);
    return;
  }
  StopServing(session);
  session->executor->peer->Send(0, control::RemoveSession{session->id});
  ExpectEnd(session);
}

void Sessions::Disconnect(Session* session) {
  session->tenant_watch.End();
  session->tenant.Reset();
  session->regions = SessionRegions{};
}

// Idempotent, because several paths lead here. Its addresses stay taken, but do not count as those
// of a served session from here on (address_share.h).
void Sessions::StopServing(Session* session) {
  if (session->state == Session::State::kEnding) return;
  session->state = Session::State::kEnding;
  session->allocation->device_addresses.EndServing();
  session->allocation->host_addresses.EndServing();
  memory_grants_->StopWaiting(session->id);
}

// The executor enforces drain_timeout itself, and reports if it waits longer for others; this is
// for an executor that does neither.
void Sessions::ExpectEnd(Session* session) {
  const uint64_t id = session->id;
  session->deadline = loop_->After(options_.drain_timeout + options_.drain_grace, [this, id] {
    Session* late = registry_.sessions.at(id).get();
    port_->LoseExecutor(late->executor, End::kAbort, late->Label() + " was not ended in time",
                        "a session was not ended in time");
  });
}

// Only when nothing of it is mapped or at the device any more: the executor has said so, or is
// dead, or never heard of it. Everything it held goes back here, to the byte.
void Sessions::Forget(uint64_t session_id) {
  const auto it = registry_.sessions.find(session_id);
  if (it == registry_.sessions.end()) return;
  const std::unique_ptr<Session> session = std::move(it->second);
  registry_.sessions.erase(it);
  StopServing(session.get());
  const uint64_t bytes = session->memory.size_bytes();
  // What the driver still holds for it moves to the executor's account, and stays charged to the
  // allocation.
  for (const auto& [memory_id, size_bytes] : MemoryBook::TakeCharged(&session->memory)) {
    session->executor->charges.emplace(memory_id,
                                       Executor::Charge{session->allocation, size_bytes});
  }
  memory_grants_->ReleaseAll(session.get());
  addresses_->Return(*session);
  if (--session->allocation->session_count == 0) session->allocation->pending_partition.clear();
  // The last charge: from here on the figures are the allocation's.
  accounting_->Charge(session.get());
  operator_traces_->CountSession(*session);
  AddTo(session->kernels_launched, &session->allocation->kernels_of_ended_sessions);
  AddTo(session->time, &session->allocation->time_of_ended_sessions);
  AddTo(session->work, &session->allocation->work_of_ended_sessions);
  session->executor->sessions.erase(session_id);
  LogFor(&session->allocation->lines, LogLevel::kInfo,
         session->Label() + " ended after " + std::to_string(session->kernels_launched) +
             " kernels" +
             (bytes == 0 ? "" : ", " + std::to_string(bytes >> 20) + " MiB taken back"));
  port_->ArmIdleTimer(session->executor);
  // Waiting requests may now get what it had.
  memory_grants_->NoteRoom();
  memory_reclaims_->Forget(session_id);
  port_->StopIfUnused();
}

// Late or wrong answers are ignored: only a session that is being added can be welcomed, or
// refused.
void Sessions::On(Executor* executor, const control::SessionReady& message, control::Incoming&) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  if (message.ok != 0) {
    if (session->state == Session::State::kAdding) SendWelcome(session, message.multiprocessors);
    return;
  }
  if (session->state == Session::State::kEnding) {  // the tenant left while it was being added
    Forget(session->id);
    return;
  }
  if (session->state != Session::State::kAdding) return;
  const std::string reason = control::TextOf(message.message);
  LogFor(&session->allocation->refusal_lines, LogLevel::kWarning,
         session->Label() + " was refused by its executor: " + reason);
  Refuse(session->tenant.get(), wire::Admission::kDeviceLost, reason);
  Forget(session->id);
}

void Sessions::On(Executor* executor, const control::SessionEnded& message, control::Incoming&) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session == nullptr || session->state == Session::State::kWaiting) return;
  accounting_->Raise(session, message.kernels_launched, message.time, message.work);
  if (message.fatal != 0) {
    const std::string reason(wire::FatalText(static_cast<wire::Fatal>(message.fatal)));
    Accounting::NoteFault(session, control::Fault::kBrokeProtocol, reason);
    LogFor(&session->allocation->fault_lines, LogLevel::kWarning,
           session->Label() + " was ended: wire: " + reason);
  }
  // Its work is still at the device, in a context that others use: nothing that it had can be given
  // to anybody before the context is gone.
  if (message.drained == 0) {
    executor->blamed = session->allocation.get();
    Accounting::NoteFault(session, control::Fault::kDidNotDrain,
                          "its work on the device did not end in time");
    LogFor(&session->allocation->fault_lines, LogLevel::kWarning,
           session->Label() + " did not drain in time: it costs domain " + executor->domain +
               " its executor");
    port_->LoseExecutor(executor, End::kKill, session->Label() + " did not drain",
                        "work on the device did not end in time");
    return;
  }
  Forget(session->id);
}

void Sessions::On(Executor* executor, const control::SessionWaits& message, control::Incoming&) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  // The session ended by itself before we were notified, and waits for these answers, too.
  memory_grants_->StopWaiting(session->id);
  if (session->state != Session::State::kEnding) return;
  // The executor repeats this message.
  if (!std::exchange(session->waits_for_others, true)) {
    LogFor(&session->allocation->lines, LogLevel::kInfo,
           session->Label() + " waits for others of domain " + executor->domain + " to end");
  }
  ExpectEnd(session);
}

void Sessions::On(Executor* executor, const control::UnsupportedCall& message, control::Incoming&) {
  Session* session = registry_.FindSession(message.session_id, *executor);
  if (session == nullptr) return;
  const std::string name = control::TextOf(message.name);
  if (session->allocation->NoteUnsupported(name)) {
    LogInfo(session->Label() + " asked CUDA for " + session->allocation->unsupported.back() +
            ", which is not supported");
  }
}

}  // namespace gpuloom::scheduler
