// SPDX-License-Identifier: Apache-2.0
// Host functions that a tenant must run in its own process: which are due, and which it has run.
// The protocol between the two sides is described in proto/wire/host_function_commands.h.
//
// A part of the session; ring thread only. Nothing here blocks: a function that never returns holds
// up what is behind it in the session's own queues, and is dropped with the session.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class HostFunctions final : public Part {
 public:
  explicit HostFunctions(SessionPort* port) : Part(port), writer_(writer()) {}

  void On(wire::Tag<wire::HostFunction>, const wire::HostFunction::Request&, const wire::Record&);

  // Makes the tenant run its function `id`; `on_done` runs in Poll after it has run. Returns false
  // if the board is full of due functions: call again later.
  [[nodiscard]] bool Call(uint64_t id, std::function<void()> on_done) {
    if (due_.size() >= wire::kMaxDueHostFunctions) return false;
    writer_->PublishHostFunction(id);
    due_.push_back(std::move(on_done));
    return true;
  }

  // Returns true if functions were finished since the last Poll, or the count is invalid.
  bool Moved() const { return !due_.empty() && writer_->HostFunctionsDoneUntrusted() != done_; }

  // Runs on_done for the functions that the tenant has run. Returns false if it claims to have run
  // more than were due, which violates the protocol.
  [[nodiscard]] bool Poll(bool* any) {
    if (due_.empty()) return true;
    const uint32_t newly_done_untrusted = writer_->HostFunctionsDoneUntrusted() - done_;
    if (newly_done_untrusted > due_.size()) return false;
    for (uint32_t i = 0; i < newly_done_untrusted; ++i) {
      const std::function<void()> on_done = std::move(due_.front());
      due_.pop_front();
      ++done_;
      on_done();
      *any = true;
    }
    return true;
  }

  // Call when no result is wanted any more; the board stays as it is.
  void Drop() { due_.clear(); }
  bool empty() const { return due_.empty(); }

 private:
  wire::CompletionWriter* const writer_;
  std::deque<std::function<void()>> due_;
  uint32_t done_ = 0;
};

}  // namespace gpuloom::executor
