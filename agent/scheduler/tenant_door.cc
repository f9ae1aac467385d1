// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/tenant_door.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/scheduler/log.h"
#include "proto/channel/socket.h"
#include "proto/control/connection.h"
#include "proto/wire/query.h"
#include "proto/wire/trace.h"

namespace gpuloom::scheduler {

namespace {

template <typename Answer>
void SendRefusal(int socket, uint32_t magic, wire::Admission admission,
                 const std::string& message) {
  Answer answer{};
  answer.magic = magic;
  answer.major = wire::kWireMajor;
  answer.minor = wire::kWireMinor;
  answer.admission = admission;
  control::SetText(answer.message, message.c_str());
  // A peer that is gone, or has filled its own socket, misses only its own explanation.
  [[maybe_unused]] const bool sent =
      channel::SendMessage(socket, &answer, sizeof(answer), nullptr, 0, MSG_DONTWAIT);
}

}  // namespace

void Refuse(int socket, wire::Admission admission, const std::string& message) {
  SendRefusal<wire::Welcome>(socket, wire::kHelloMagic, admission, message);
}

void RefuseQuery(int socket, wire::Admission admission, const std::string& message) {
  SendRefusal<wire::QueryAnswer>(socket, wire::kQueryMagic, admission, message);
}

void RefuseTrace(int socket, wire::Admission admission, const std::string& message) {
  SendRefusal<wire::TraceAnswer>(socket, wire::kTraceMagic, admission, message);
}

TenantDoor::~TenantDoor() {
  watch_.End();
  if (listener_.valid()) unlink(path_.c_str());
}

// Also called again on a door whose socket has been removed: the old listener is closed, and those
// who have connected stay.
bool TenantDoor::Open(const std::string& directory, std::string* error) {
  path_ = directory + "/" + wire::kSocketName;
  struct stat status;
  if (stat(directory.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
    *error = "allocation directory " + directory +
             " does not exist: whoever adds an allocation makes it first";
    return false;
  }
  // The watch before its descriptor, as event_loop.h demands.
  watch_.End();
  listener_ = channel::ListenAt(path_.c_str());
  if (!listener_.valid()) {
    *error = "cannot make the socket " + path_ + ": " + strerror(errno);
    return false;
  }
  watch_ = loop_->WatchFd(listener_.get(), EPOLLIN, [this](uint32_t) { Accept(); });
  return true;
}

bool TenantDoor::present() const { return access(path_.c_str(), F_OK) == 0; }

// Connecting costs a tenant nothing, so it is bounded three ways: connections per second,
// connections per turn of the loop, and connections that have sent nothing.
void TenantDoor::Accept() {
  const auto now = EventLoop::Clock::now();
  if (now - second_began_ >= std::chrono::seconds(1)) {
    second_began_ = now;
    connections_this_second_ = 0;
  }
  // A few per turn of the loop, so that a crowd at one door keeps no other waiting.
  for (int i = 0; i < 8; ++i) {
    if (connections_this_second_ >= kMaxConnectionsPerSecond) {
      Pause(std::chrono::seconds(1) - (now - second_began_));
      return;
    }
    channel::UniqueFd socket(
        accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.valid()) {
      // No descriptors or memory: the connection stays in the backlog, and the listener readable,
      // so looking again at once would spin.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        LogWarning("tenant: cannot accept a connection at " + path_ + ": " + strerror(errno) +
                   "; tried again in a second: raise the limit of open files, or free memory here");
        Pause(std::chrono::seconds(1));
      }
      return;
    }
    ++connections_this_second_;
    ucred peer{};
    socklen_t size = sizeof(peer);
    getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size);
    // Its watch and its timer go with it.
    if (silent_.size() >= kMaxSilent) silent_.pop_front();
    silent_.push_back(Silent{std::move(socket), peer.pid, {}, {}});
    const auto connection = std::prev(silent_.end());
    connection->watch = loop_->WatchFd(connection->socket.get(), EPOLLIN,
                                       [this, connection](uint32_t) { ReadHello(connection); });
    connection->deadline =
        loop_->After(kHelloTimeout, [this, connection] { silent_.erase(connection); });
  }
}

// Watches for nothing: new connections wait in the backlog, whose length the kernel bounds.
void TenantDoor::Pause(EventLoop::Clock::duration time) {
  watch_.Change(0);
  pause_ = loop_->After(time, [this] { watch_.Change(EPOLLIN); });
}

// One message decides. A short or unknown one is closed without an answer: it is not from our shim.
// One of another version is told what to do.
void TenantDoor::ReadHello(SilentList::iterator silent) {
  TenantConnection connection{};
  uint8_t said_untrusted[wire::kLongestHelloBytes];
  const ptrdiff_t size =
      channel::ReceiveMessage(silent->socket.get(), said_untrusted, sizeof(said_untrusted), nullptr,
                              0, nullptr, MSG_DONTWAIT);
  if (size < 0 && errno == EAGAIN) return;
  // Its watch and deadline end here: from now on the descriptor belongs to the connection.
  silent->watch.End();
  connection.socket = std::move(silent->socket);
  connection.pid = silent->pid;
  silent_.erase(silent);
  const bool is_long_enough = size >= static_cast<ptrdiff_t>(wire::kShortestHelloBytes);
  if (is_long_enough) {
    // A longer Hello of a newer minor is cut to what is known here; a shorter one leaves the rest
    // zero.
    memcpy(&connection.hello, said_untrusted,
           std::min(static_cast<size_t>(size), sizeof(connection.hello)));
  }
  const uint32_t magic = connection.hello.magic;
  if (!is_long_enough ||
      (magic != wire::kHelloMagic && magic != wire::kQueryMagic && magic != wire::kTraceMagic)) {
    LogDebug(ProcessText(connection.pid) + " at " + path_ + " said no proper Hello");
    return;
  }
  if (!wire::CanServe(connection.hello.major, connection.hello.minor)) {
    const auto version = [](uint16_t major, uint16_t minor) {
      return std::to_string(major) + "." + std::to_string(minor);
    };
    const auto refuse = magic == wire::kQueryMagic   ? RefuseQuery
                        : magic == wire::kTraceMagic ? RefuseTrace
                                                     : Refuse;
    refuse(connection.socket.get(), wire::Admission::kWrongVersion,
           "wire: the library in the container speaks version " +
               version(connection.hello.major, connection.hello.minor) +
               ", this node's scheduler " + version(wire::kWireMajor, wire::kWireMinor) +
               ": restart the pod to get the node's library");
    return;
  }
  on_connection_(std::move(connection));
}

}  // namespace gpuloom::scheduler
