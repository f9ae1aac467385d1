// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/hostile_tenant.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <atomic>

namespace gpuloom::testing {

HostileTenant::HostileTenant(const std::string& directory)
    : connection_(channel::ConnectTo((directory + "/" + wire::kSocketName).c_str())) {
  const timeval patience = {kPatience.count() / 1000, 0};
  setsockopt(connection_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
}

bool HostileTenant::Send(const void* data, size_t size_bytes, const int* fds, size_t fd_count) {
  return channel::SendMessage(connection_.get(), data, size_bytes, fds, fd_count);
}

bool HostileTenant::ReceiveWelcome() {
  size_t fd_count = 0;
  const ptrdiff_t size = channel::ReceiveMessage(connection_.get(), &welcome_, sizeof(welcome_),
                                                 fds_, wire::kWelcomeFds, &fd_count);
  return size == sizeof(welcome_);
}

bool HostileTenant::Attach() {
  const wire::Hello hello{wire::kHelloMagic, wire::kWireMajor, wire::kWireMinor, 0, 0, 0, {}};
  if (!Send(&hello, sizeof(hello)) || !ReceiveWelcome() ||
      welcome_.admission != wire::Admission::kAccepted) {
    return false;
  }
  using Access = channel::Mapping::Access;
  if (!ring_.Map(fds_[wire::kCommandRegionFd].get(), sizeof(wire::CommandRegion),
                 Access::kReadWrite) ||
      !completion_memory_.Map(fds_[wire::kCompletionRegionFd].get(), sizeof(wire::CompletionRegion),
                              Access::kReadOnly) ||
      !arena_.MapAt(welcome_.host_range_begin, fds_[wire::kArenaFd].get(),
                    welcome_.host_range_bytes, Access::kReadWrite)) {
    return false;
  }
  writer_ = wire::RingWriter(
      commands(), reinterpret_cast<const wire::CompletionRegion*>(completion_memory_.data()));
  return true;
}

uint32_t HostileTenant::consumed() const {
  auto& head =
      reinterpret_cast<const wire::CompletionRegion*>(completion_memory_.data())->head.head;
  return std::atomic_ref<uint32_t>(const_cast<uint32_t&>(head)).load(std::memory_order_acquire);
}

void HostileTenant::WriteRing(const std::vector<uint8_t>& bytes, uint32_t tail) {
  if (!bytes.empty()) std::memcpy(commands()->ring, bytes.data(), bytes.size());
  std::atomic_ref<uint32_t>(commands()->head.tail).store(tail, std::memory_order_release);
  Ring();
}

wire::Fatal HostileTenant::WaitForFatal() {
  Eventually([this] { return completions().fatal() != wire::Fatal::kNone; }, kPatience);
  return completions().fatal();
}

const wire::ReplySlot* HostileTenant::WaitForReply(uint16_t slot, wire::Ticket ticket) {
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (completions().fatal() == wire::Fatal::kNone &&
         std::chrono::steady_clock::now() < deadline) {
    if (const wire::ReplySlot* reply = completions().FindReply(slot, ticket)) return reply;
    std::this_thread::yield();
  }
  return completions().FindReply(slot, ticket);
}

bool HostileTenant::WaitForHangUp() {
  return Eventually(
      [this] {
        pollfd socket{connection_.get(), POLLIN, 0};
        return poll(&socket, 1, 0) == 1 && (socket.revents & (POLLHUP | POLLERR)) != 0;
      },
      kPatience);
}

void HostileTenant::HangUp() { connection_.Reset(); }

}  // namespace gpuloom::testing
