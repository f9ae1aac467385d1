// SPDX-License-Identifier: Apache-2.0
#include "proto/channel/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>

namespace gpuloom::channel {
namespace {

// Further connections block in connect(), so that a crowd waits in its own processes, not in our
// memory.
constexpr int kBacklog = 128;

// Fills `address` for `path`. A path that does not fit is reached through a descriptor of its
// directory, which the caller keeps open until the address has been used.
bool MakeAddress(const char* path, sockaddr_un* address, UniqueFd* directory) {
  memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  if (strlen(path) < sizeof(address->sun_path)) {
    memcpy(address->sun_path, path, strlen(path));
    return true;
  }
  const char* slash = strrchr(path, '/');
  char parent[4096];
  const size_t parent_bytes = slash == nullptr ? 0 : static_cast<size_t>(slash - path);
  if (parent_bytes == 0 || parent_bytes >= sizeof(parent)) {
    errno = ENAMETOOLONG;
    return false;
  }
  memcpy(parent, path, parent_bytes);
  parent[parent_bytes] = '\0';
  directory->Reset(open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory->valid()) return false;
  // `slash` has the slash and the socket's name.
  const int n = snprintf(address->sun_path, sizeof(address->sun_path), "/proc/self/fd/%d%s",
                         directory->get(), slash);
  if (n < 0 || static_cast<size_t>(n) >= sizeof(address->sun_path)) {
    errno = ENAMETOOLONG;
    return false;
  }
  return true;
}

}  // namespace

bool SendMessage(int socket, const void* data, size_t size_bytes, const int* fds, size_t fd_count,
                 int flags) {
  if (fd_count > kMaxFds) {
    errno = EINVAL;
    return false;
  }
  iovec part = {const_cast<void*>(data), size_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  // The padding in it goes to the kernel as well.
  memset(control, 0, sizeof(control));
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd_count > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
    memcpy(CMSG_DATA(header), fds, sizeof(int) * fd_count);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL | flags);
  } while (sent < 0 && errno == EINTR);
  // SOCK_SEQPACKET sends all of a message or none of it.
  return sent == static_cast<ssize_t>(size_bytes);
}

ptrdiff_t ReceiveMessage(int socket, void* data, size_t capacity_bytes, UniqueFd* fds,
                         size_t fd_capacity, size_t* fd_count, int flags) {
  iovec part = {data, capacity_bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kMaxFds)];
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  do {
    size = recvmsg(socket, &message, MSG_CMSG_CLOEXEC | flags);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return -1;

  // All descriptors that came are taken before anything is judged: one that is not closed here
  // would be ours for good.
  size_t count = 0;
  // With MSG_CTRUNC the kernel itself has closed those that had no room.
  bool surplus = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t n = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < n; ++i) {
      int fd;
      memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(fd));
      if (count < fd_capacity) {
        fds[count++].Reset(fd);
      } else {
        close(fd);
        surplus = true;
      }
    }
  }
  if (surplus) {
    for (size_t i = 0; i < count; ++i) fds[i].Reset();
    errno = EMSGSIZE;
    return -1;
  }
  // End of file. (A message without bytes looks the same; ours have headers.)
  if (size == 0) {
    errno = ECONNRESET;
    return -1;
  }
  if (fd_count != nullptr) *fd_count = count;
  return size;
}

UniqueFd ListenAt(const char* path) {
  sockaddr_un address;
  UniqueFd directory;
  if (!MakeAddress(path, &address, &directory)) return UniqueFd();
  UniqueFd listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener.valid()) return UniqueFd();
  unlink(path);
  if (bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return UniqueFd();
  if (chmod(path, 0666) != 0 || listen(listener.get(), kBacklog) != 0) return UniqueFd();
  return listener;
}

UniqueFd ConnectTo(const char* path, unsigned timeout_ms) {
  sockaddr_un address;
  UniqueFd directory;
  if (!MakeAddress(path, &address, &directory)) return UniqueFd();
  UniqueFd connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection.valid()) return UniqueFd();
  timeval limit;
  limit.tv_sec = timeout_ms / 1000;
  limit.tv_usec = timeout_ms % 1000 * 1000;
  // Before connect(): it waits no longer than a message would.
  if (timeout_ms != 0 &&
      setsockopt(connection.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) != 0) {
    return UniqueFd();
  }
  int result;
  do {
    result = connect(connection.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  } while (result != 0 && errno == EINTR);
  if (result != 0) return UniqueFd();
  return connection;
}

bool MakePair(int type, UniqueFd* a, UniqueFd* b) {
  int fds[2];
  if (socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, fds) != 0) return false;
  a->Reset(fds[0]);
  b->Reset(fds[1]);
  return true;
}

void RingDoorbell(int socket) {
  const char byte = 1;
  ssize_t sent;
  do {
    // Errors are nobody's business here: a peer that is gone shows as a hang-up where its socket is
    // polled.
    sent = send(socket, &byte, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
}

bool DrainDoorbell(int socket) {
  char bytes[kDoorbellBytes];
  ssize_t n;
  do {
    n = recv(socket, bytes, sizeof(bytes), MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK));
}

}  // namespace gpuloom::channel
