// SPDX-License-Identifier: Apache-2.0
// Whole messages with descriptors over Unix sockets (SOCK_SEQPACKET). Free of libstdc++ and
// exceptions: it runs inside tenants' processes too. Every function may be called from any thread;
// a socket is used by one thread at a time. Failures return false or -1 with errno set; end of file
// is errno = ECONNRESET.
#pragma once

#include <cstddef>
#include <cstdint>

#include "proto/channel/unique_fd.h"

namespace gpuloom::channel {

// More than any message of ours carries.
inline constexpr size_t kMaxFds = 8;

// Sends one message whole; the descriptors are duplicated by the kernel and stay the caller's.
// EINTR is retried; with O_NONBLOCK or `flags` MSG_DONTWAIT a full socket is errno EAGAIN. SIGPIPE
// is never raised.
[[nodiscard]] bool SendMessage(int socket, const void* data, size_t size_bytes,
                               const int* fds = nullptr, size_t fd_count = 0, int flags = 0);

// Receives one message whole into `data`. Returns its size, or -1. A message that is larger than
// `capacity_bytes` or carries more than `fd_capacity` descriptors is an error (EMSGSIZE): the
// surplus descriptors are closed, so a peer cannot fill our table. Pass fd_capacity 0 where none is
// expected. Received descriptors are close-on-exec.
[[nodiscard]] ptrdiff_t ReceiveMessage(int socket, void* data, size_t capacity_bytes,
                                       UniqueFd* fds = nullptr, size_t fd_capacity = 0,
                                       size_t* fd_count = nullptr, int flags = 0);

// A SOCK_SEQPACKET listener at `path` (mode 0666: the directory decides who gets there; a stale
// socket is replaced). Paths longer than sun_path go through /proc/self/fd. Returns an invalid
// UniqueFd with errno.
[[nodiscard]] UniqueFd ListenAt(const char* path);
// Waits while the listener's backlog is full, for `timeout_ms` at most (then EAGAIN; 0: without a limit), which
// also holds for each message that is sent later.
[[nodiscard]] UniqueFd ConnectTo(const char* path, unsigned timeout_ms = 0);

// A connected pair; type is SOCK_STREAM for doorbells and SOCK_SEQPACKET for messages. Both ends
// close-on-exec.
[[nodiscard]] bool MakePair(int type, UniqueFd* a, UniqueFd* b);

// A doorbell is one byte on a stream socket pair. Ringing never blocks: a full socket has already
// woken the peer.
void RingDoorbell(int socket);
// Reads what is pending, up to this much: a peer that rings without end must not keep the caller busy. Returns false
// if the peer has hung up.
inline constexpr size_t kDoorbellBytes = 512;
[[nodiscard]] bool DrainDoorbell(int socket);

}  // namespace gpuloom::channel
