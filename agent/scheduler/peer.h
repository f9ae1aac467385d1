// SPDX-License-Identifier: Apache-2.0
// A control connection on the event loop: whole messages in, whole messages out, never blocking. What does not fit into
// the socket is queued; a peer that lets more than kMaxKept messages pile up is disconnected. The loop must outlive it,
// and its thread alone may call it.
//
// The owner may destroy the Peer inside either handler. `on_gone` is called once, with the reason, never from inside
// Send, and no handler is called after it.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "proto/control/connection.h"

namespace gpuloom::scheduler {

class Peer {
 public:
  using OnMessage = std::function<void(control::Incoming&)>;
  using OnGone = std::function<void(const std::string& reason)>;

  static constexpr char kHungUp[] = "hung up";
  // More than all sessions of an executor together can have in flight.
  static constexpr size_t kMaxKept = 4096;

  Peer(EventLoop* loop, channel::UniqueFd socket, OnMessage on_message, OnGone on_gone);

  template <control::Message M>
  void Send(uint32_t request, const M& message, std::vector<channel::UniqueFd> fds = {}) {
    const control::Encoded<M> encoded(request, message, connection_.peer_minor());
    SendOrKeep({{encoded.bytes, encoded.bytes + encoded.size_bytes}, std::move(fds)});
  }

  void SetPeerMinor(uint16_t minor) { connection_.set_peer_minor(minor); }

  // From now on at most this many descriptors may come with a message; initially none.
  void ExpectDescriptors(size_t most) { most_descriptors_ = most; }

  // More than a socket buffer holds, however large its owner makes it.
  static constexpr size_t kMaxPending = 4096;

  // Delivers the messages that have already arrived from a peer whose process is known to be dead, while `keep_going`
  // returns true and at most kMaxPending of them: the process may have passed its end of the socket to another one,
  // which still sends. The owner must not destroy the Peer meanwhile.
  void ReceivePending(const std::function<bool()>& keep_going);

  // Whether the other end is closed. `on_gone` follows once the messages that it sent before have been delivered.
  bool HasHungUp() const;

 private:
  struct Kept {
    std::vector<uint8_t> bytes;
    std::vector<channel::UniqueFd> fds;
  };

  void OnEvents(uint32_t events);
  void SendOrKeep(Kept kept);
  bool TrySend(const Kept& kept);
  void Flush();
  void Break(const std::string& reason);

  EventLoop* loop_;
  control::Connection connection_;
  OnMessage on_message_;
  OnGone on_gone_;
  std::deque<Kept> kept_;
  size_t most_descriptors_ = 0;
  bool broken_ = false;
  Watch watch_;
  Timer breaking_;
};

}  // namespace gpuloom::scheduler
