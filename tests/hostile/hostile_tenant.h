// SPDX-License-Identifier: Apache-2.0
// A tenant without the shim: speaks the handshake by hand and then writes what it likes into its
// ring. Used from one thread.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "proto/channel/region.h"
#include "proto/channel/socket.h"
#include "proto/wire/completion_reader.h"
#include "proto/wire/ring_writer.h"
#include "proto/wire/session.h"
#include "tests/integration/process.h"

namespace gpuloom::testing {

class HostileTenant {
 public:
  // Connects only.
  explicit HostileTenant(const std::string& directory);

  bool Send(const void* data, size_t size_bytes, const int* fds = nullptr, size_t fd_count = 0);
  // The scheduler's answer; false when it hung up or said nothing.
  bool ReceiveWelcome();
  // A correct Hello, its Welcome, and the regions mapped.
  bool Attach();

  const wire::Welcome& welcome() const { return welcome_; }
  wire::CommandRegion* commands() { return reinterpret_cast<wire::CommandRegion*>(ring_.data()); }
  wire::CompletionReader completions() const {
    return wire::CompletionReader(
        reinterpret_cast<const wire::CompletionRegion*>(completion_memory_.data()));
  }
  // How many bytes of the ring the executor has taken, running free.
  uint32_t consumed() const;
  uint8_t* arena() { return arena_.data(); }
  int doorbell() const { return fds_[wire::kDoorbellFd].get(); }
  int descriptor(wire::WelcomeFd which) const { return fds_[which].get(); }

  // Writes bytes at the ring's beginning and says that `tail` bytes are there.
  void WriteRing(const std::vector<uint8_t>& bytes, uint32_t tail);
  template <wire::Command C>
  wire::Ticket Write(const typename C::Request& request, const std::string& payload = "",
                     uint16_t slot = wire::kNoReply) {
    uint8_t* where = nullptr;
    *writer_.Reserve<C>(static_cast<uint32_t>(payload.size()), &where, slot) = request;
    std::memcpy(where, payload.data(), payload.size());
    const wire::Ticket ticket = writer_.Commit();
    Ring();
    return ticket;
  }
  void Ring() { channel::RingDoorbell(doorbell()); }

  // Waits until the session is over; the executor's reason, kNone when none came.
  wire::Fatal WaitForFatal();
  // Waits for an answer; nullptr when none came.
  const wire::ReplySlot* WaitForReply(uint16_t slot, wire::Ticket ticket);
  // True when the scheduler closes the connection.
  bool WaitForHangUp();
  void HangUp();

 private:
  channel::UniqueFd connection_;
  wire::Welcome welcome_ = {};
  channel::UniqueFd fds_[wire::kWelcomeFds];
  channel::Mapping ring_, completion_memory_, arena_;
  wire::RingWriter writer_;
};

}  // namespace gpuloom::testing
