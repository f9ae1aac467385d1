// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/own_traces.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include "agent/scheduler/device.h"
#include "agent/scheduler/log.h"
#include "proto/channel/region.h"
#include "proto/channel/socket.h"

namespace gpuloom::scheduler {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Anything from the tenant ends its trace: it has nothing to say after its request.
constexpr uint32_t kHangUp = EPOLLIN | EPOLLRDHUP;

bool MayTrace(const Allocation& allocation) {
  return allocation.trace != control::TraceTerms::kNone;
}

constexpr char kNotAllowed[] =
    "the policy does not let this container trace: whoever runs the cluster can write "
    "`trace: own` for its namespace (without Kubernetes: gpuloom run --trace own)";

constexpr char kOperatorTraces[] = "the node's operator traces this GPU now: try again later";

}  // namespace

// In the order in which a person can do something about it: identity, permission, request, then
// what others are doing.
std::string OwnTraces::WhyNot(const Allocation& allocation, uint32_t time_ms_untrusted,
                              Executor** executor) const {
  if (!allocation.bound) {
    return "allocation not resolved yet: the node's agent has not said which pod this is";
  }
  if (!MayTrace(allocation)) return kNotAllowed;
  if (time_ms_untrusted == 0 || time_ms_untrusted > wire::kMaxOwnTraceMs) {
    return "a trace of " + std::to_string(time_ms_untrusted) + " ms: from 1 to " +
           std::to_string(wire::kMaxOwnTraceMs) + " is possible";
  }
  const auto now = EventLoop::Clock::now();
  if (now < allocation.next_trace) {
    return "this container has traced just now: it may again in " +
           std::to_string(std::chrono::ceil<seconds>(allocation.next_trace - now).count()) + " s";
  }
  *executor = nullptr;
  for (const auto& [id, session] : registry_.sessions) {
    if (session->allocation.get() == &allocation && session->state == Session::State::kLive) {
      *executor = session->executor;
    }
  }
  if (*executor == nullptr) {
    return "no program of this container uses the GPU now: start it first";
  }
  if (gives_way_) return kOperatorTraces;
  for (const auto& [id, trace] : traces_) {
    if (trace->allocation.get() == &allocation) return "this container is being traced already";
    if (trace->executor_id == (*executor)->id) {
      return "the trust domain of this container is being traced already: try again later";
    }
  }
  if (traces_.size() >= kMaxOwnTraces) {
    return "this GPU is being traced by as many as it can be: try again later";
  }
  return "";
}

void OwnTraces::Begin(const AllocationPtr& allocation, TenantConnection connection) {
  Executor* executor = nullptr;
  std::string why_not = WhyNot(*allocation, connection.hello.trace_ms, &executor);
  std::vector<channel::UniqueFd> fds(1);
  auto owned = std::make_unique<OwnTrace>();
  // The region is made before anything is promised, and is charged to nobody: kMaxOwnTraces bounds
  // it.
  if (why_not.empty()) {
    owned->region = channel::MakeSealedMemory("gpuloom-own-trace", wire::kTraceRegionBytes);
    if (owned->region.valid()) fds[0].Reset(dup(owned->region.get()));
    if (!fds[0].valid()) {
      LogFor(&allocation->lines, LogLevel::kWarning,
             "trace: cannot make shared memory for " + allocation->Label() + ": " +
                 strerror(errno) + "; it is refused: free memory of the node");
      why_not = "the node has no memory for a trace now: try again later";
    }
  }
  if (!why_not.empty()) {
    LogFor(&allocation->lines, LogLevel::kInfo, allocation->Label() + ": no trace: " + why_not);
    RefuseTrace(connection.socket.get(), wire::Admission::kRefused, why_not);
    return;
  }
  OwnTrace* trace = owned.get();
  trace->id = registry_.NextId();
  trace->allocation = allocation;
  trace->executor_id = executor->id;
  trace->time = milliseconds(connection.hello.trace_ms);
  trace->began = EventLoop::Clock::now();
  trace->pid_namespace_untrusted = connection.hello.pid_namespace;
  trace->tenant = std::move(connection.socket);
  const uint64_t id = trace->id;
  trace->watch = loop_->WatchFd(trace->tenant.get(), kHangUp, [this, id](uint32_t events) {
    // Before the trace is written only a hang-up is watched for; then also that the tenant can take
    // more.
    if ((events & ~uint32_t{EPOLLOUT}) != 0) return EndTrace(id, "");
    SendOf(id);
  });
  Await(trace, options_.trace_patience);
  traces_.emplace(id, std::move(owned));
  for (const auto& [session_id, session] : registry_.sessions) AddSession(*session);

  control::StartTracingOwn order{};
  order.trace_id = id;
  order.allocation_id = allocation->id;
  order.most_records = wire::kOwnTraceRecords;
  // An executor of a former trust domain may have others' sessions, too.
  if (allocation->trace == control::TraceTerms::kOwnByCupti &&
      executor->domain == allocation->trust_domain) {
    order.cupti = 1;
    executor->was_traced = true;
  }
  executor->peer->Send(0, order, std::move(fds));
  LogFor(&allocation->lines, LogLevel::kInfo,
         allocation->Label() + ": traces itself for " + std::to_string(trace->time.count()) +
             " ms, asked by " + ProcessText(connection.pid));
}

void OwnTraces::Await(OwnTrace* trace, milliseconds patience) {
  const uint64_t id = trace->id;
  trace->timer =
      loop_->After(patience, [this, id] { EndTrace(id, "the executor did not answer in time"); });
}

// The sessions that are named to the requester, all of its own allocation. Their process numbers
// only where they are in the requester's pid namespace; elsewhere the same number means another
// process.
void OwnTraces::AddSession(const Session& session) {
  for (const auto& [id, trace] : traces_) {
    if (trace->allocation != session.allocation || session.executor->id != trace->executor_id ||
        trace->sessions.size() == wire::kMaxTraceSessionNames) {
      continue;
    }
    const bool is_theirs = session.pid_namespace_untrusted != 0 &&
                           session.pid_namespace_untrusted == trace->pid_namespace_untrusted;
    trace->sessions.push_back({session.id, is_theirs ? session.own_pid_untrusted : 0, 0});
  }
}

bool OwnTraces::OnProgress(const Executor& executor, const control::TraceProgress& message) {
  const auto it = traces_.find(message.trace_id);
  if (it == traces_.end() || it->second->executor_id != executor.id) return false;
  OwnTrace* trace = it->second.get();
  const uint64_t id = trace->id;
  // Steps out of order are ignored or end the trace; the executor can do no more than spoil it.
  const auto step = static_cast<control::TraceStep>(message.step);
  if (step == control::TraceStep::kRecords && trace->state == OwnTrace::State::kBegins) {
    trace->state = OwnTrace::State::kRecords;
    trace->timer = loop_->After(trace->time, [this, id] { Stop(traces_.at(id).get()); });
  } else if (step == control::TraceStep::kWritten && trace->state != OwnTrace::State::kSends) {
    if (trace->state == OwnTrace::State::kWrites) {
      Answer(trace);
    } else {
      EndTrace(id, "the executor could not record");
    }
  }
  return true;
}

// What was recorded so far is written and sent; the executor has `trace_patience` for that.
void OwnTraces::Stop(OwnTrace* trace) {
  trace->state = OwnTrace::State::kWrites;
  if (const Executor* executor = registry_.FindConnected(trace->executor_id)) {
    executor->peer->Send(0, control::StopTracing{trace->id});
  }
  Await(trace, options_.trace_patience);
}

void OwnTraces::Answer(OwnTrace* trace) {
  const uint64_t id = trace->id;
  // The executor can still write to the region: everything is read once, bounded, and only then
  // used.
  wire::TraceHeader header_untrusted{};
  if (pread(trace->region.get(), &header_untrusted, sizeof(header_untrusted), 0) !=
      static_cast<ssize_t>(sizeof(header_untrusted))) {
    return EndTrace(id, "what was recorded cannot be read");
  }
  wire::TraceAnswer answer{};
  answer.magic = wire::kTraceMagic;
  answer.major = wire::kWireMajor;
  answer.minor = wire::kWireMinor;
  answer.admission = wire::Admission::kAccepted;
  answer.header_bytes = sizeof(wire::TraceHeader);
  answer.record_bytes = sizeof(wire::TraceRecord);
  answer.records = std::min(header_untrusted.records, wire::kOwnTraceRecords);
  answer.name_bytes = std::min(header_untrusted.name_bytes, wire::kTraceNameBytes);
  const DeviceFacts& facts = device_->facts();
  std::copy(std::begin(facts.uuid), std::end(facts.uuid), answer.gpu_uuid);
  answer.session_count = static_cast<uint32_t>(trace->sessions.size());
  std::copy(trace->sessions.begin(), trace->sessions.end(), answer.sessions);
  if (!channel::SendMessage(trace->tenant.get(), &answer, sizeof(answer), nullptr, 0,
                            MSG_DONTWAIT)) {
    return EndTrace(id, "");
  }
  trace->state = OwnTrace::State::kSends;
  trace->pieces = {{{0, answer.header_bytes},
                    {wire::kTraceRecordsAt, answer.records * answer.record_bytes},
                    {wire::kTraceNamesAt, answer.name_bytes}}};
  trace->timer = loop_->After(options_.trace_patience, [this, id] { EndTrace(id, ""); });
  trace->watch.Change(kHangUp | EPOLLOUT);
  // The trace no longer keeps the executor alive.
  if (Executor* executor = registry_.FindExecutor(trace->executor_id)) {
    port_->ArmIdleTimer(executor);
  }
}

// One message each time, so that the loop serves others between them.
void OwnTraces::SendOf(uint64_t id) {
  const auto it = traces_.find(id);
  if (it == traces_.end()) return;
  OwnTrace* trace = it->second.get();
  const auto piece = std::find_if(trace->pieces.begin(), trace->pieces.end(),
                                  [](const OwnTrace::Piece& one) { return one.bytes != 0; });
  if (piece == trace->pieces.end()) return EndTrace(id, "");
  // A copy of what may be changing: the tenant gets whatever the executor had there.
  uint8_t chunk_untrusted[wire::kTraceChunkBytes];
  const size_t bytes = std::min<uint64_t>(piece->bytes, sizeof(chunk_untrusted));
  if (pread(trace->region.get(), chunk_untrusted, bytes, static_cast<off_t>(piece->at)) !=
      static_cast<ssize_t>(bytes)) {
    return EndTrace(id, "");
  }
  if (!channel::SendMessage(trace->tenant.get(), chunk_untrusted, bytes, nullptr, 0,
                            MSG_DONTWAIT)) {
    // A full socket: the watch calls again when the tenant has read.
    if (errno != EAGAIN) EndTrace(id, "");
    return;
  }
  piece->at += bytes;
  piece->bytes -= bytes;
}

void OwnTraces::EndTrace(uint64_t id, const std::string& why) {
  const auto it = traces_.find(id);
  if (it == traces_.end()) return;
  // Out of the table first: the calls below may look there.
  const std::unique_ptr<OwnTrace> trace = std::move(it->second);
  traces_.erase(it);
  trace->watch.End();
  if (!why.empty()) {
    LogFor(&trace->allocation->lines, LogLevel::kWarning,
           trace->allocation->Label() + ": its trace is lost: " + why);
    RefuseTrace(trace->tenant.get(), wire::Admission::kRefused, why);
  }
  const auto now = EventLoop::Clock::now();
  // At least as long a pause as the trace took, so that others of the domain can have their turn.
  trace->allocation->next_trace =
      now + std::max<EventLoop::Clock::duration>(kOwnTracePause, now - trace->began);
  Executor* executor = registry_.FindConnected(trace->executor_id);
  if (executor == nullptr) return;
  if (trace->state == OwnTrace::State::kBegins || trace->state == OwnTrace::State::kRecords) {
    executor->peer->Send(0, control::StopTracing{trace->id});
  }
  port_->ArmIdleTimer(executor);
}

void OwnTraces::EndAll(const std::function<bool(const OwnTrace&)>& which, const std::string& why) {
  std::vector<uint64_t> ids;
  // Ids, because ending one changes the table. Those that are being sent need the executor no more.
  for (const auto& [id, trace] : traces_) {
    if (trace->state != OwnTrace::State::kSends && which(*trace)) ids.push_back(id);
  }
  for (const uint64_t id : ids) EndTrace(id, why);
}

void OwnTraces::GiveWay() {
  gives_way_ = true;
  EndAll([](const OwnTrace&) { return true; }, kOperatorTraces);
}

void OwnTraces::EndOf(const Executor& executor) {
  EndAll([&](const OwnTrace& trace) { return trace.executor_id == executor.id; },
         "the executor has ended: its programs must be started again");
}

void OwnTraces::EndIfNotAllowed(const Allocation& allocation) {
  if (allocation.removed || !MayTrace(allocation)) {
    EndAll([&](const OwnTrace& trace) { return trace.allocation.get() == &allocation; },
           allocation.removed ? "the container's allocation was removed" : kNotAllowed);
  }
}

bool OwnTraces::Uses(const Executor& executor) const {
  return std::any_of(traces_.begin(), traces_.end(), [&](const auto& entry) {
    return entry.second->executor_id == executor.id &&
           entry.second->state != OwnTrace::State::kSends;
  });
}

}  // namespace gpuloom::scheduler
