// SPDX-License-Identifier: Apache-2.0
// How a session ends: its work at CUDA finishes, then everything is returned, piece by piece, so
// that other tenants do not wait for the end of one with many objects.
#include <utility>

#include "agent/executor/device/device.h"
#include "agent/executor/device/quiet.h"
#include "agent/executor/memory/host_memory.h"
#include "agent/executor/module/linker.h"
#include "agent/executor/process/log.h"
#include "agent/executor/session/scheduler_link.h"
#include "agent/executor/session/session_parts.h"

namespace gpuloom::executor {

// From here on nothing is read, and nothing that waits is submitted. What is dropped at once is
// what no tenant can miss any more; whatever holds memory or addresses is returned in order, in
// ReturnEverything.
void Session::End(wire::Fatal reason, uint64_t now_ns) {
  if (state_ != State::kServing) return;
  state_ = State::kEnding;
  deadline_ns_ = now_ns + uint64_t{order_.drain_timeout_ms} * 1'000'000;
  if (reason != wire::Fatal::kNone) {
    (void)reader_.Fail(reason);
    LogFor(&tenant_->lines, LogLevel::kError,
           "wire: session %llu (%s) broke the protocol: %s, at command %s; it ends",
           static_cast<unsigned long long>(id()), label(),
           std::string(wire::FatalText(reason)).c_str(),
           std::string(wire::CommandName(reader_.last_opcode_untrusted())).c_str());
    published_ = true;
    Notify();
  }
  chores_.Do([this] { return streams_.DropWaiting(); });
  parts_->memory_operations.End();
  parts_->host_functions.Drop();
  parts_->submission.LeavePrintQueue();
  parts_->device_memory.End();
  parts_->events.End();
  parts_->managed_memory.End();
  parts_->pinned_memory.End();
  parts_->graphs.End();
  // Before Recheck and Leave: workers that are woken by these must see it.
  *left_ = true;
  services_.device->linker().Recheck();
  modules_.Leave();
  parts_->links.End();
  // A neighbour's long kernel must not keep this session from ending.
  outstanding_ -= services_.quiet->Drop(owner());
  // Jobs on the memory lane and fences must finish: only they know of what must be returned.
}

// Returns true if everything has finished that must finish before anything is returned.
bool Session::HasRunOut() {
  return chores_.empty() && streams_.Idle() && parts_->submission.fences() == 0 && memory_.Idle() &&
         outstanding_ == 0;
}

constexpr uint32_t kMostReturningWaits = 5;

// Waiting because of others does not count: for memory that is cleared after their work, or for a
// driver call that waits for it.
void Session::SendWaits() {
  services_.scheduler->Send(control::SessionWaits{id()});
  deadline_ns_ = now_ns_ + uint64_t{order_.drain_timeout_ms} * 1'000'000;
}

bool Session::ContinueEnding() {
  if (state_ == State::kReturning) {
    // If this takes longer, something hangs: the scheduler then has the executor say where.
    if (now_ns_ > deadline_ns_ && returning_waits_++ < kMostReturningWaits) SendWaits();
    return false;
  }

  if (HasRunOut()) {
    ReturnEverything();
    return true;
  }
  if (now_ns_ <= deadline_ns_) return false;
  if (!AtDevice()) {
    SendWaits();
    return false;
  }
  // Never suppressed: it is the executor's last line, and other tenants lose their work because of
  // it.
  size_t streams = 0, graphs = 0, chains = 0;
  for (const Stream* stream : streams_.active()) {
    streams += stream->in_flight != 0;
    graphs += stream->graphs.size();
    chains += stream->chains.size();
  }
  Log(LogLevel::kError,
      "session %llu (%s) did not drain within %u ms, with work of %zu streams at the device, %zu "
      "graphs and %zu chains among it: the executor will be ended",
      static_cast<unsigned long long>(id()), label(), order_.drain_timeout_ms, streams, graphs,
      chains);
  state_ = State::kStuck;
  SendEnded(false);
  return true;
}

void Session::ReturnEverything() {
  state_ = State::kReturning;
  chores_.Do([this] { return parts_->graphs.DropPiece(); });
  chores_.Do([this] { return parts_->conditions.DropPiece(); });
  chores_.Do([this] { return parts_->libraries.DropReferences(); });
  chores_.Do([this] { return parts_->libraries.DropKernels(); });
  chores_.Do([this] { return parts_->libraries.DropLibraries(); });
  chores_.Do([this] { return parts_->events.DropPiece(); });
  chores_.Do([this] { return parts_->arrays.DestroyViews(); });
  chores_.Do([this] { return parts_->arrays.DropPiece(); });
  chores_.Do([this] { return parts_->green_contexts.DropPiece(); });
  chores_.Do([this] { return parts_->managed_memory.RetirePiece(); });
  chores_.Do([this] { return parts_->pinned_memory.RetirePiece(); });
  chores_.Do([this] { return parts_->submission.GiveStreams(); });
  chores_.Do([this] {
    parts_->green_contexts.GiveSpares();
    return true;
  });
  chores_.Do([this] { return parts_->device_memory.ReturnMemory(); });
  chores_.Do([this] { return parts_->device_memory.LeaveToOthers(); });
  chores_.Do([this] {
    parts_->device_memory.ReturnAddresses([this] {
      parts_->submission.EndWords();
      SendEnded(true);
      // A compilation may keep this session for long, but must not keep the tenant's memory.
      host_->on_unpinned = nullptr;
      host_->on_left = nullptr;
      host_.reset();
      parts_->device_memory.DropTables();
      state_ = State::kEnded;
    });
    return true;
  });
}

void Session::SendEnded(bool drained) {
  services_.scheduler->Send(control::SessionEnded{id(), kernels_launched_,
                                                  static_cast<uint32_t>(reader_.fatal()), drained,
                                                  TimeUsed(), share_.counts});
}

}  // namespace gpuloom::executor
