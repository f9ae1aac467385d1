// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/operator_traces.h"

#include <errno.h>
#include <string.h>

#include <algorithm>

#include "agent/scheduler/accounting.h"
#include "agent/scheduler/controller.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/own_traces.h"
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

bool OperatorTraces::Apply(Controller* controller, const control::BeginTrace& message,
                           std::string* error) {
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
  own_traces_->GiveWay();
  trace_ = std::make_unique<Trace>();
  trace_->id = registry_.NextId();
  trace_->controller = controller;
  trace_->began = now;
  for (const auto& [id, executor] : registry_.executors) {
    if (executor->state == Executor::State::kReady) AddPart(executor.get());
  }
  // The limit is for a controller that never ends its trace: recording stops, the records are kept.
  trace_->limit = loop_->After(std::chrono::milliseconds(message.limit_ms), [this] { Stop(); });
  // Executors that have not answered by then are not waited for: BeginTrace is answered without
  // them.
  trace_->patience = loop_->After(options_.trace_patience, [this] {
    AnswerBegin();
    Advance();
  });
  LogInfo("a trace begins: " + std::to_string(trace_->parts.size()) + " executors record");
  return true;
}

bool OperatorTraces::Apply(Controller* controller, const control::EndTrace&, std::string* error) {
  if (trace_ == nullptr || trace_->controller != controller || trace_->ends) {
    *error = "no trace was begun over this connection";
    return false;
  }
  trace_->ends = true;
  AnswerBegin();
  Stop();
  trace_->patience = loop_->After(options_.trace_patience, [this] { SendAll(); });
  return true;
}

void OperatorTraces::Await(bool begins, uint32_t request) {
  (begins ? trace_->begin_request : trace_->end_request) = request;
  Advance();
}

// Also for executors that become ready while a trace goes on. Those beyond the limits are only
// counted.
void OperatorTraces::AddPart(Executor* executor) {
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
      LogWarning("trace: cannot make shared memory for the " + executor->Name() + ": " +
                 strerror(errno) + "; it is left out: free memory of the node, and trace again");
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
    if (const Session* session = registry_.FindSession(id, *executor)) AddSession(*session);
  }
}

// A session that has no name in the trace is still recorded, as an unknown tenant's.
void OperatorTraces::AddSession(const Session& session) {
  if (trace_ == nullptr || !trace_->parts.contains(session.executor->id) ||
      trace_->sessions.size() == kMaxTraceSessions) {
    return;
  }
  trace_->sessions.try_emplace(
      session.id, Trace::Traced{session.executor->id, session.allocation, session.time, {}});
}

// When the session ends, or its executor has stopped recording, whichever comes first.
void OperatorTraces::CountSession(const Session& session) {
  if (trace_ == nullptr) return;
  const auto it = trace_->sessions.find(session.id);
  if (it == trace_->sessions.end() || it->second.counted) return;
  it->second.time = Since(it->second.before, session.time);
  it->second.counted = true;
}

void OperatorTraces::On(Executor* executor, const control::TraceProgress& message,
                        control::Incoming&) {
  if (own_traces_->OnProgress(*executor, message)) return;
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
        Session* session = registry_.FindSession(id, *executor);
        if (session == nullptr) continue;
        accounting_->Charge(session);
        traced.before = session->time;
      }
      break;
    case control::TraceStep::kStopped:
      if (std::exchange(part.stopped, true)) return;
      for (const uint64_t id : executor->sessions) {
        Session* session = registry_.FindSession(id, *executor);
        if (session == nullptr) continue;
        accounting_->Charge(session);
        CountSession(*session);
      }
      break;
    case control::TraceStep::kWritten:
      part.written = true;
      break;
    default:
      return;
  }
  Advance();
}

// What it had recorded until then is in the region, and is sent all the same, marked as lost.
void OperatorTraces::LosePart(const Executor& executor) {
  if (trace_ == nullptr) return;
  const auto it = trace_->parts.find(executor.id);
  if (it == trace_->parts.end() || it->second.written) return;
  it->second.lost = true;
  it->second.message = executor.reason;
  Advance();
}

// New executors are not added any more; those that record are asked to write what they have.
void OperatorTraces::Stop() {
  if (std::exchange(trace_->stopped, true)) return;
  trace_->limit.Cancel();
  for (const auto& [id, part] : trace_->parts) {
    const Executor* executor = registry_.FindConnected(id);
    if (executor != nullptr) executor->peer->Send(0, control::StopTracing{trace_->id});
  }
}

void OperatorTraces::DropOf(const Controller& controller) {
  if (trace_ == nullptr || trace_->controller != &controller) return;
  Stop();
  (void)Take();
}

std::unique_ptr<Trace> OperatorTraces::Take() {
  std::unique_ptr<Trace> trace = std::move(trace_);
  own_traces_->Resume();
  for (const auto& [id, executor] : registry_.executors) {
    // Those that were traced are to end when they are idle (ArmIdleTimer).
    if (executor->was_traced) port_->ArmIdleTimer(executor.get());
  }
  return trace;
}

void OperatorTraces::Advance() {
  // Lost parts are not waited for.
  const auto all = [this](const auto& done) {
    return std::all_of(trace_->parts.begin(), trace_->parts.end(),
                       [&](const auto& entry) { return entry.second.lost || done(entry.second); });
  };
  if (trace_->begins && all([](const auto& part) { return part.records || part.written; })) {
    AnswerBegin();
  }
  if (trace_->ends && all([](const auto& part) { return part.written; })) SendAll();
}

void OperatorTraces::AnswerBegin() {
  if (!std::exchange(trace_->begins, false) || trace_->begin_request == 0) return;
  control::Answer answer{};
  answer.ok = 1;
  trace_->controller->peer->Send(trace_->begin_request, answer);
}

void OperatorTraces::SendAll() {
  const std::unique_ptr<Trace> trace = Take();
  // Nobody asked for an answer.
  if (trace->end_request == 0) return;
  Peer* peer = trace->controller->peer.get();
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
