// SPDX-License-Identifier: Apache-2.0
// The scheduler's orders. One that does not decode is logged and ignored.
#include <errno.h>
#include <string.h>

#include <utility>

#include "agent/executor/process/log.h"
#include "agent/executor/session/loop.h"
#include "agent/executor/session/session.h"
#include "proto/control/dispatch.h"

namespace gpuloom::executor {

// The scheduler is trusted, but may be of another version: what cannot be read is no reason to end
// all tenants' work.
void Loop::OnOrder(control::Incoming* in, uint64_t now_ns) {
  using control::Route;
  const control::Judgement judged = control::Dispatch<Route::kSchedulerOrders>(
      *in, [&](const auto& order) { On(order, in, now_ns); });
  if (judged == control::Judgement::kHandled) return;
  const std::string_view name = control::FindMessage(in->header.type)->name;
  Log(LogLevel::kError, "control: malformed %.*s (%u bytes, %zu descriptors): ignored",
      static_cast<int>(name.size()), name.data(), in->body_bytes, in->fd_count);
}

void Loop::On(const control::RemoveSession& order, control::Incoming*, uint64_t now_ns) {
  // Unknown: it has ended already, and SessionEnded is on its way.
  if (Session* session = FindSession(order.session_id)) {
    session->End(wire::Fatal::kNone, now_ns);
  }
}

void Loop::On(const control::MemoryReclaim& order, control::Incoming*, uint64_t) {
  if (Session* session = FindSession(order.session_id)) {
    session->Reclaim(order.reclaim_id);
  } else {
    // The scheduler waits for an answer from everybody that it has asked.
    scheduler_.Send(control::MemoryReclaimed{order.session_id, order.reclaim_id});
  }
}

// Sessions follow by themselves: in each round they see that TimeSharing's or Partitions' changes()
// has grown.
void Loop::On(const control::SetShares& order, control::Incoming*, uint64_t) {
  sharing_.Set(order);
  partitions_.Set(order);
  for (const auto& session : sessions_) {
    if (session->share().allocation_id == order.allocation_id) {
      session->share().kernels = order.kernels;
    }
  }
}

void Loop::On(const control::HoldSession& order, control::Incoming* in, uint64_t) {
  // A newer scheduler's reason, which this executor does not know.
  if (order.reason >= control::kHoldReasons) return;
  // Unknown: it has ended already, and SessionEnded is on its way.
  if (Session* session = FindSession(order.session_id)) {
    session->Hold(static_cast<control::HoldReason>(order.reason), order.hold != 0,
                  in->header.request);
  }
}

void Loop::On(const control::GiveTurn& order, control::Incoming*, uint64_t) { turns_.Give(order); }

void Loop::On(const control::EndTurn&, control::Incoming* in, uint64_t) {
  turns_.End(in->header.request);
}

void Loop::On(const control::StartTracing& order, control::Incoming* in, uint64_t) {
  // There is one: Dispatch has checked the number of descriptors.
  tracer_.Start({order.trace_id, std::move(in->fds[0])});
}

void Loop::On(const control::StartTracingOwn& order, control::Incoming* in, uint64_t) {
  tracer_.Start({order.trace_id, std::move(in->fds[0]), order.allocation_id, order.most_records,
                 order.cupti != 0});
}

void Loop::On(const control::StopTracing& order, control::Incoming*, uint64_t) {
  tracer_.Stop(order.trace_id);
}

void Loop::On(const control::AddSession& order, control::Incoming* in, uint64_t) {
  control::SessionReady ready = {};
  ready.session_id = order.session_id;
  std::string error;
  const Services services{device_,
                          &modules_,
                          &memory_,
                          &scheduler_,
                          &quiet_,
                          &libraries_,
                          &internal_,
                          &staging_,
                          &graphs_,
                          &greens_,
                          &shared_,
                          &printer_,
                          &tenants_,
                          &room_,
                          &sharing_,
                          &partitions_,
                          budget_,
                          &context_memory_,
                          batches_ ? &chains_ : nullptr,
                          submitters_.any() ? &submitters_ : nullptr,
                          &several_at_work_,
                          &tracer_};
  std::unique_ptr<Session> session = Session::Make(services, order, in->fds, &error);
  if (session != nullptr && !WatchDoorbell(*session)) {
    error = std::string("watching the doorbell: ") + strerror(errno);
    session.reset();
  }
  ready.ok = session != nullptr;
  if (session != nullptr) {
    ready.multiprocessors = partitions_.Multiprocessors(order.allocation_id);
    session->LogBegin();
    sessions_.push_back(std::move(session));
  } else {
    control::SetText(ready.message, error.c_str());
    Log(LogLevel::kError, "session %llu cannot begin: %s",
        static_cast<unsigned long long>(order.session_id), error.c_str());
  }
  scheduler_.Send(ready, in->header.request);
}

}  // namespace gpuloom::executor
