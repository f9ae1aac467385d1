// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/scheduler_link.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "agent/executor/process/log.h"

namespace gpuloom::executor {

bool HandOver(int scheduler, channel::UniqueFd refused_calls, std::string* error) {
  // The kernel gave no descriptor, or none was requested.
  if (!refused_calls.valid()) return true;
  const control::Encoded<control::RefusedCalls> encoded(0, {}, control::kControlMinor);
  const int fd = refused_calls.get();
  if (channel::SendMessage(scheduler, encoded.bytes, encoded.size_bytes, &fd, 1)) return true;
  *error = std::string("control: handing over the descriptor of refused system calls: ") +
           strerror(errno);
  return false;
}

void SchedulerLink::SendBytes(std::vector<uint8_t> bytes) {
  outbox_.push_back(std::move(bytes));
  Flush();
}

// A message is one packet of the socket: it goes as a whole or not at all.
void SchedulerLink::Flush() {
  while (!outbox_.empty() && !closed_) {
    const std::vector<uint8_t>& bytes = outbox_.front();
    if (!channel::SendMessage(connection_.fd(), bytes.data(), bytes.size(), nullptr, 0,
                              MSG_DONTWAIT)) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) Close("sending");
      return;
    }
    outbox_.pop_front();
  }
}

void SchedulerLink::Close(const char* doing) {
  // The usual end; anything else is worth knowing.
  if (errno != ECONNRESET && errno != EPIPE) {
    Log(LogLevel::kError, "control: %s: %s; the executor ends", doing, strerror(errno));
  }
  closed_ = true;
}

bool SchedulerLink::Receive(control::Incoming* in, bool* is_order) {
  *is_order = false;
  if (closed_) return false;
  if (!connection_.Receive(in, channel::kMaxFds, MSG_DONTWAIT)) {
    if (errno != EAGAIN && errno != EWOULDBLOCK) Close("receiving");
    return false;
  }
  // Both sides number their own questions, so the type tells an order from an answer.
  const control::MessageInfo* info = control::FindMessage(in->header.type);
  *is_order = info != nullptr && info->route == control::Route::kSchedulerOrders;
  if (*is_order) return true;
  const auto it = waiting_.find(in->header.request);
  // An answer to no request: the caller looks for further messages.
  if (it == waiting_.end()) return true;
  // Taken out first: the callback may ask the next question, which changes the table.
  const OnAnswer on_answer = std::move(it->second);
  waiting_.erase(it);
  on_answer(in);
  return true;
}

}  // namespace gpuloom::executor
