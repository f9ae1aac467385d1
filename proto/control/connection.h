// SPDX-License-Identifier: Apache-2.0
// Sends and receives control messages on one SOCK_SEQPACKET connection. Owned by one thread.
//
//   connection.Send(7, AddAllocation{...});
//   Incoming in;
//   if (connection.Receive(&in) && in.As<Answer>(&answer)) ...
#pragma once

#include <errno.h>
#include <string.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "proto/channel/socket.h"
#include "proto/control/message_list.h"
#include "proto/control/protocol_version.h"

namespace gpuloom::control {

// One received message, header checked, with its descriptors.
struct Incoming {
  MessageHeader header{};
  uint32_t body_bytes = 0;
  uint8_t body[kMaxMessageBytes];
  channel::UniqueFd fds[channel::kMaxFds];
  size_t fd_count = 0;

  // Returns true if this is an M; fields that an older peer does not send are zero, those that a
  // newer one adds are ignored. On false, `out` is unchanged.
  template <Message M>
  [[nodiscard]] bool As(M* out) const {
    if (header.type != kType<M> || body_bytes < ShortestBytes<M>()) return false;
    if constexpr (!std::is_empty_v<M>) {
      *out = M{};
      std::memcpy(out, body, std::min<size_t>(body_bytes, sizeof(M)));
    }
    return true;
  }
};

// One message encoded for a peer of our major and the given minor.
template <Message M>
struct Encoded {
  Encoded(uint32_t request, const M& message, uint16_t peer_minor) {
    const MessageHeader header{kType<M>, request};
    std::memcpy(bytes, &header, sizeof(header));
    if constexpr (!std::is_empty_v<M>) {
      std::memcpy(bytes + sizeof(header), &message, sizeof(M));
      // Readers of 3.0 accept no message longer than their own.
      if (peer_minor == 0) size_bytes = sizeof(header) + ShortestBytes<M>();
    }
  }
  uint8_t bytes[sizeof(MessageHeader) + kBodyBytes<M>];
  size_t size_bytes = sizeof(bytes);
};

class Connection {
 public:
  Connection() = default;
  explicit Connection(channel::UniqueFd socket)
      : socket_(static_cast<channel::UniqueFd&&>(socket)) {}

  int fd() const { return socket_.get(); }
  bool valid() const { return socket_.valid(); }
  void Close() { socket_.Reset(); }

  // The peer's minor; our own until this is called.
  void set_peer_minor(uint16_t minor) { peer_minor_ = minor; }
  uint16_t peer_minor() const { return peer_minor_; }

  // `flags`: MSG_DONTWAIT where the caller must not block. False with errno.
  template <Message M>
  [[nodiscard]] bool Send(uint32_t request, const M& message, const int* fds = nullptr,
                          size_t fd_count = 0, int flags = 0) {
    const Encoded<M> encoded(request, message, peer_minor_);
    return channel::SendMessage(socket_.get(), encoded.bytes, encoded.size_bytes, fds, fd_count,
                                flags);
  }

  // Blocks unless `flags` has MSG_DONTWAIT. At most `fd_capacity` descriptors are taken. False with
  // errno: EAGAIN, ECONNRESET at the end of the connection, EPROTO for a message too short to have
  // a header.
  [[nodiscard]] bool Receive(Incoming* in, size_t fd_capacity = 0, int flags = 0) {
    uint8_t bytes[kMaxMessageBytes];
    for (auto& fd : in->fds) fd.Reset();
    in->fd_count = 0;
    const ptrdiff_t size = channel::ReceiveMessage(socket_.get(), bytes, sizeof(bytes), in->fds,
                                                   fd_capacity, &in->fd_count, flags);
    if (size < 0) return false;
    if (static_cast<size_t>(size) < sizeof(MessageHeader)) {
      errno = EPROTO;
      return false;
    }
    std::memcpy(&in->header, bytes, sizeof(MessageHeader));
    in->body_bytes = static_cast<uint32_t>(size) - sizeof(MessageHeader);
    std::memcpy(in->body, bytes + sizeof(MessageHeader), in->body_bytes);
    return true;
  }

 private:
  channel::UniqueFd socket_;
  uint16_t peer_minor_ = kControlMinor;
};

// Copies text into a fixed field, cut and NUL-terminated. Text received from a peer is read through
// TextOf, which stops at the field's end whatever the peer wrote.
template <size_t N>
void SetText(char (&field)[N], const char* text, size_t length) {
  const size_t n = length < N - 1 ? length : N - 1;
  std::memset(field, 0, N);
  std::memcpy(field, text, n);
}
template <size_t N>
void SetText(char (&field)[N], const char* text) {
  SetText(field, text, std::strlen(text));
}
template <size_t N>
size_t TextLength(const char (&field_untrusted)[N]) {
  return strnlen(field_untrusted, N);
}
template <size_t N>
std::string TextOf(const char (&field_untrusted)[N]) {
  return {field_untrusted, TextLength(field_untrusted)};
}

}  // namespace gpuloom::control
