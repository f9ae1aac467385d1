// SPDX-License-Identifier: Apache-2.0
// Traces: one at a time, requested over the control socket, recorded by the executors. What an executor says of its
// trace is untrusted: it affects only its own part, and the scheduler does not wait for one that does not answer.
#include <errno.h>
#include <string.h>

#include <algorithm>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"
#include "proto/channel/region.h"
#include "proto/wire/trace_region.h"

namespace gpuloom::scheduler {
namespace {

// What a session was charged while it was recorded. Charges never go back, so nothing wraps.
control::TimeUsage Since(const control::TimeUsage& before, const control::TimeUsage& now) {
  return {now.compute_ns - before.compute_ns,
          now.copy_to_device_ns - before.copy_to_device_ns,
          now.copy_from_device_ns - before.copy_from_device_ns,
          now.queue_ns - before.queue_ns,
          now.throttled_ns - before.throttled_ns,
          now.held_ns - before.held_ns};
}

control::TraceEnd EndOf(const Trace::Part& part) {
  return part.lost      ? control::TraceEnd::kLost
         : part.written ? control::TraceEnd::kWhole
                        : control::TraceEnd::kSilent;
}

}  // namespace

bool Scheduler::Apply(uint64_t controller, const control::BeginTrace& message, std::string* error) {
  if (message.limit_ms == 0 || message.limit_ms > control::kMaxTraceMs) {
    *error = "a trace of " + std::to_string(message.limit_ms) + " ms: from 1 to " +
             std::to_string(control::kMaxTraceMs) + " is possible";
    return false;
  }
  const auto now = EventLoop::Clock::now();
  if (trace_ != nullptr) {
    const auto age = std::chrono::duration_cast<std::chrono::seconds>(now - trace_->began);
    *error = "this GPU is being traced already, since " + std::to_string(age.count()) +
             " s: wait until that has ended";
    return false;
  }
  // An executor records one trace at a time, and tenants' own have to make room.
  EndOwnTraces([](const OwnTrace&) { return true; },
               "the node's operator traces this GPU now: try again later");
  trace_ = std::make_unique<Trace>();
  trace_->id = ++last_id_;
  trace_->controller = controller;
  trace_->began = now;
  for (const auto& [id, executor] : executors_) {
    if (executor->state == Executor::State::kReady) AddTracePart(executor.get());
  }
  // The limit is for a controller that never ends its trace: recording stops, the records are kept.
  trace_->limit =
      loop_->After(std::chrono::milliseconds(message.limit_ms), [this] { StopTrace(); });
  // Executors that have not answered by then are not waited for: BeginTrace is answered without
  // them.
  trace_->patience = loop_->After(options_.trace_patience, [this] {
    AnswerBegin();
    LookAtTrace();
  });
  LogInfo("a trace begins: " + std::to_string(trace_->parts.size()) + " executors record");
  return true;
}

bool Scheduler::Apply(uint64_t controller, const control::EndTrace&, std::string* error) {
  if (trace_ == nullptr || trace_->controller != controller || trace_->ends) {
    *error = "no trace was begun over this connection";
    return false;
  }
  trace_->ends = true;
  AnswerBegin();
  StopTrace();
  trace_->patience = loop_->After(options_.trace_patience, [this] { SendTrace(); });
  return true;
}

void Scheduler::AwaitTrace(bool begins, uint32_t request) {
  (begins ? trace_->begin_request : trace_->end_request) = request;
  LookAtTrace();
}

// Also for executors that become ready while a trace goes on. Those beyond the limits are only
// counted.
void Scheduler::AddTracePart(Executor* executor) {
  if (trace_ == nullptr || trace_->stopped) return;
  const auto of_domain = std::count_if(
      trace_->parts.begin(), trace_->parts.end(),
      [executor](const auto& entry) { return entry.second.domain == executor->domain; });
  Trace::Part part;
  part.domain = executor->domain;
  std::vector<channel::UniqueFd> fds(1);
  if (trace_->parts.size() < kMaxTraceParts &&
      static_cast<size_t>(of_domain) < kMaxTracePartsOfDomain) {
    part.region = channel::MakeSealedMemory("gpuloom-trace", wire::kTraceRegionBytes);
    if (part.region.valid()) fds[0].Reset(dup(part.region.get()));
    if (!fds[0].valid()) {
      LogWarning(std::string("a trace: cannot make shared memory: ") + strerror(errno));
    }
  }
  if (!fds[0].valid()) {
    ++trace_->left_out;
    return;
  }
  // A copy of the descriptor: the original is what the controller gets at the end, read-only.
  executor->peer->Send(0, control::StartTracing{trace_->id}, std::move(fds));
  trace_->parts.emplace(executor->id, std::move(part));
  executor->was_traced = true;
  for (const uint64_t id : executor->sessions) {
    if (const Session* session = FindSession(id, *executor)) AddTraced(*session);
  }
}

// A session that has no name in the trace is still recorded, as an unknown tenant's.
void Scheduler::AddTraced(const Session& session) {
  if (trace_ == nullptr || !trace_->parts.contains(session.executor->id) ||
      trace_->sessions.size() == kMaxTraceSessions) {
    return;
  }
  trace_->sessions.try_emplace(
      session.id, Trace::Traced{session.executor->id, session.allocation, session.time, {}});
}

// When the session ends, or its executor has stopped recording, whichever comes first.
void Scheduler::CountTraced(const Session& session) {
  if (trace_ == nullptr) return;
  const auto it = trace_->sessions.find(session.id);
  if (it == trace_->sessions.end() || it->second.counted) return;
  it->second.time = Since(it->second.before, session.time);
  it->second.counted = true;
}

void Scheduler::On(Executor* executor, const control::TraceProgress& message, control::Incoming&) {
  if (OnOwnTrace(*executor, message)) return;
  if (trace_ == nullptr || trace_->id != message.trace_id) return;
  const auto it = trace_->parts.find(executor->id);
  if (it == trace_->parts.end() || it->second.lost) return;
  Trace::Part& part = it->second;
  switch (static_cast<control::TraceStep>(message.step)) {
    case control::TraceStep::kRecords:
      // The beginning of recording is the executor's, so charges count from here, not from the
      // order.
      if (std::exchange(part.records, true)) return;
      for (auto& [id, traced] : trace_->sessions) {
        Session* session = FindSession(id, *executor);
        if (session == nullptr) continue;
        ChargeTime(session);
        traced.before = session->time;
      }
      break;
    case control::TraceStep::kStopped:
      if (std::exchange(part.stopped, true)) return;
      for (const uint64_t id : executor->sessions) {
        Session* session = FindSession(id, *executor);
        if (session == nullptr) continue;
        ChargeTime(session);
        CountTraced(*session);
      }
      break;
    case control::TraceStep::kWritten:
      part.written = true;
      break;
    default:
      return;
  }
  LookAtTrace();
}

// What it had recorded until then is in the region, and is sent all the same, marked as lost.
void Scheduler::LoseTracePart(const Executor& executor) {
  if (trace_ == nullptr) return;
  const auto it = trace_->parts.find(executor.id);
  if (it == trace_->parts.end() || it->second.written) return;
  it->second.lost = true;
  it->second.message = executor.reason;
  LookAtTrace();
}

// New executors are not added any more; those that record are asked to write what they have.
void Scheduler::StopTrace() {
  if (std::exchange(trace_->stopped, true)) return;
  trace_->limit.Cancel();
  for (const auto& [id, part] : trace_->parts) {
    const auto it = executors_.find(id);
    if (it == executors_.end() || it->second->peer == nullptr) continue;
    it->second->peer->Send(0, control::StopTracing{trace_->id});
  }
}

void Scheduler::DropTraceOf(uint64_t controller) {
  if (trace_ == nullptr || trace_->controller != controller) return;
  StopTrace();
  (void)TakeTrace();
}

std::unique_ptr<Trace> Scheduler::TakeTrace() {
  std::unique_ptr<Trace> trace = std::move(trace_);
  for (const auto& [id, executor] : executors_) {
    // Those that were traced are to end when they are idle (LookIdle).
    if (executor->was_traced) LookIdle(executor.get());
  }
  return trace;
}

void Scheduler::LookAtTrace() {
  // A lost part is waited for by nobody.
  const auto all = [this](const auto& done) {
    return std::all_of(trace_->parts.begin(), trace_->parts.end(),
                       [&](const auto& entry) { return entry.second.lost || done(entry.second); });
  };
  if (trace_->begins && all([](const auto& part) { return part.records || part.written; })) {
    AnswerBegin();
  }
  if (trace_->ends && all([](const auto& part) { return part.written; })) SendTrace();
}

void Scheduler::AnswerBegin() {
  if (!std::exchange(trace_->begins, false) || trace_->begin_request == 0) return;
  control::Answer answer{};
  answer.ok = 1;
  controllers_.at(trace_->controller).peer->Send(trace_->begin_request, answer);
}

void Scheduler::SendTrace() {
  const std::unique_ptr<Trace> trace = TakeTrace();
  // Nobody asked for an answer.
  if (trace->end_request == 0) return;
  Peer* peer = controllers_.at(trace->controller).peer.get();
  size_t left_out = trace->left_out;
  for (const auto& [id, part] : trace->parts) {
    std::vector<channel::UniqueFd> fds(1);
    // The operator's command reads it while the executor may still write: read-only, so it changes
    // nothing.
    fds[0] = channel::ReopenReadOnly(part.region.get());
    if (!fds[0].valid()) {
      ++left_out;
      continue;
    }
    control::TracePart message{};
    message.executor_id = id;
    message.end = static_cast<uint32_t>(EndOf(part));
    control::SetText(message.trust_domain, part.domain.c_str());
    control::SetText(message.message, part.message.c_str());
    peer->Send(trace->end_request, message, std::move(fds));
  }
  for (const auto& [id, traced] : trace->sessions) {
    control::TraceSession message{};
    message.session_id = id;
    message.executor_id = traced.executor_id;
    const Identity& identity = traced.allocation->identity;
    control::SetText(message.pod_namespace, identity.pod_namespace.c_str());
    control::SetText(message.pod, identity.pod.c_str());
    control::SetText(message.pod_uid, identity.pod_uid.c_str());
    control::SetText(message.container, identity.container.c_str());
    message.time = traced.time;
    peer->Send(trace->end_request, message);
  }
  control::Answer answer{};
  answer.ok = 1;
  if (left_out != 0) {
    control::SetText(answer.message,
                     (std::to_string(left_out) + " executors were not recorded").c_str());
  }
  peer->Send(trace->end_request, answer);
  LogInfo("the trace has ended");
}

}  // namespace gpuloom::scheduler
