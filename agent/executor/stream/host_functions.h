// SPDX-License-Identifier: Apache-2.0
// The functions that one tenant is to run in its own process: which are due, and which it has run. The
// words between the two are explained in proto/wire/host_function_commands.h.
//
// A part of the session; ring thread only. Nothing here waits: a function that never returns holds
// what stands behind it in the session's own queues, and goes with the session.
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

  // Tells the tenant to run the function that it calls `id`; `on_done` runs in Poll when it has.
  // False when as many are due as the board holds: ask again later.
  [[nodiscard]] bool Call(uint64_t id, std::function<void()> on_done) {
    if (due_.size() >= wire::kMaxDueHostFunctions) return false;
    writer_->PublishHostFunction(id);
    due_.push_back(std::move(on_done));
    return true;
  }

  // True: something was done since the last Poll, or the count is impossible.
  bool Moved() const { return !due_.empty() && writer_->HostFunctionsDoneUntrusted() != done_; }

  // Runs the on_done of what the tenant has run. False when it says that it has run more than was
  // due, which breaks the protocol.
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

  // Nobody waits any more; the board stays as it is.
  void Drop() { due_.clear(); }
  bool empty() const { return due_.empty(); }

 private:
  wire::CompletionWriter* const writer_;
  std::deque<std::function<void()>> due_;
  uint32_t done_ = 0;
};

}  // namespace gpuloom::executor
