// SPDX-License-Identifier: Apache-2.0
// The executor's end of the control socket: requests to the scheduler with their answers, and
// messages without answers. Nothing here blocks: what the socket does not accept is queued. Ring
// thread only. When the scheduler is gone, closed() is true and the process must end.
//
// Owned by the loop; outlives sessions and pools. What an answer's handler uses must live until the
// answer has come: requests cannot be taken back.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "proto/control/connection.h"

namespace gpuloom::executor {

// For the time before there is a SchedulerLink: passes on the descriptor through which the kernel
// reports refused system calls (control::RefusedCalls), and keeps no copy. An invalid descriptor is
// ignored. Returns false with a message.
[[nodiscard]] bool HandOver(int scheduler, channel::UniqueFd refused_calls, std::string* error);

class SchedulerLink {
 public:
  // Not called if the scheduler goes away before it answers; the process then ends.
  using OnAnswer = std::function<void(control::Incoming* answer)>;

  explicit SchedulerLink(channel::UniqueFd socket)
      : connection_(static_cast<channel::UniqueFd&&>(socket)) {}

  template <control::Message M>
  void Send(const M& message, uint32_t request = 0) {
    const control::Encoded<M> encoded(request, message, connection_.peer_minor());
    SendBytes({encoded.bytes, encoded.bytes + encoded.size_bytes});
  }

  template <control::Message M>
  void Ask(const M& message, OnAnswer on_answer) {
    // 0 means "no answer"; numbers repeat only after four billion requests.
    if (++last_request_ == 0) ++last_request_;
    waiting_[last_request_] = std::move(on_answer);
    Send(message, last_request_);
  }

  // Takes one message; returns false if there is none. Answers are passed to their requester;
  // orders are left to the caller: *is_order is then true.
  [[nodiscard]] bool Receive(control::Incoming* in, bool* is_order);

  // Sends what is queued. Call when the socket is writable.
  void Flush();
  bool WantsToWrite() const { return !outbox_.empty(); }
  // Returns true if requests are unanswered.
  bool waits() const { return !waiting_.empty(); }
  bool closed() const { return closed_; }
  int fd() const { return connection_.fd(); }

 private:
  void SendBytes(std::vector<uint8_t> bytes);
  // Closes the connection because of errno.
  void Close(const char* doing);

  control::Connection connection_;
  std::unordered_map<uint32_t, OnAnswer> waiting_;
  std::deque<std::vector<uint8_t>> outbox_;
  uint32_t last_request_ = 0;
  bool closed_ = false;
};

}  // namespace gpuloom::executor
