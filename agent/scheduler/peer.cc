// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/peer.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

namespace gpuloom::scheduler {

Peer::Peer(EventLoop* loop, channel::UniqueFd socket, OnMessage on_message, OnGone on_gone)
    : loop_(loop),
      connection_(std::move(socket)),
      on_message_(std::move(on_message)),
      on_gone_(std::move(on_gone)),
      watch_(loop->WatchFd(connection_.fd(), EPOLLIN,
                           [this](uint32_t events) { OnEvents(events); })) {}

// Sending first: what has been kept must not wait for what the peer says.
void Peer::OnEvents(uint32_t events) {
  if ((events & EPOLLOUT) != 0) Flush();
  if (broken_ || (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  // One message a turn, so that no peer keeps the others waiting.
  control::Incoming in;
  if (connection_.Receive(&in, most_descriptors_, MSG_DONTWAIT)) {
    const OnMessage on_message = on_message_;  // the handler may destroy this
    on_message(in);
    return;
  }
  if (errno == EAGAIN) return;
  // ECONNRESET is the connection's word for its end (proto/control/connection.h).
  Break(errno == ECONNRESET ? std::string(kHungUp) : std::string("receive: ") + strerror(errno));
}

// Stops as soon as the owner says so: a message may have made it give the peer up.
void Peer::ReceivePending(const std::function<bool()>& keep_going) {
  const OnMessage on_message = on_message_;
  control::Incoming in;
  for (size_t i = 0;
       i < kMaxPending && keep_going() && connection_.Receive(&in, most_descriptors_, MSG_DONTWAIT);
       ++i) {
    on_message(in);
  }
}

bool Peer::HasHungUp() const {
  pollfd polled{connection_.fd(), 0, 0};
  return poll(&polled, 1, 0) == 1 && (polled.revents & POLLHUP) != 0;
}

// In order: what is new goes behind what is kept. Descriptors are kept with their message, open
// until it has gone.
void Peer::SendOrKeep(Kept kept) {
  if (broken_) return;
  if (kept_.empty() && TrySend(kept)) return;
  if (broken_) return;
  if (kept_.size() >= kMaxKept) {
    Break("does not read what it is sent");
    return;
  }
  kept_.push_back(std::move(kept));
  watch_.Change(EPOLLIN | EPOLLOUT);
}

bool Peer::TrySend(const Kept& kept) {
  int fds[channel::kMaxFds];
  size_t count = 0;
  for (const auto& fd : kept.fds) fds[count++] = fd.get();
  if (channel::SendMessage(connection_.fd(), kept.bytes.data(), kept.bytes.size(), fds, count,
                           MSG_DONTWAIT)) {
    return true;
  }
  // A hang-up is reported by the receiving side, after what the peer said last has been read.
  if (errno == EPIPE || errno == ECONNRESET) return true;
  if (errno != EAGAIN) Break(std::string("send: ") + strerror(errno));
  return false;
}

void Peer::Flush() {
  while (!kept_.empty() && TrySend(kept_.front())) kept_.pop_front();
  if (kept_.empty()) watch_.Change(EPOLLIN);
}

// Tells the owner from the loop, not from here: Send is called in the middle of the owner's work,
// which would lose the peer under its feet.
void Peer::Break(const std::string& reason) {
  broken_ = true;
  watch_.End();
  kept_.clear();
  breaking_ = loop_->After(EventLoop::Clock::duration::zero(), [this, reason] {
    const OnGone on_gone = on_gone_;  // the handler may destroy this
    on_gone(reason);
  });
}

}  // namespace gpuloom::scheduler
