// SPDX-License-Identifier: Apache-2.0
// The part of a session for pinned parts of its arena. Ring thread only. Which parts these are stands in HostMemory,
// which is shared with whatever is still pinned and so may outlive the session; this part only has who waits.
#pragma once

#include <deque>

#include "agent/executor/session/session_port.h"

namespace gpuloom::executor {

class PinnedMemory final : public Part {
 public:
  explicit PinnedMemory(SessionPort* port);
  ~PinnedMemory();

  void On(wire::Tag<wire::HostRegister>, const wire::HostRegister::Request&, const wire::Record&);
  void On(wire::Tag<wire::HostUnregister>, const wire::HostUnregister::Request&,
          const wire::Record&);

  // Call when the session ends.
  void End() { host_waiting_.clear(); }
  // After End: retires one piece; returns true if that was the last.
  bool RetirePiece();

 private:
  struct HostWaiting {
    Caller caller;
    uint64_t address;
    uint64_t size_bytes;
  };
  void TryHostRegister(Caller caller, uint64_t address, uint64_t size_bytes);
  void TryWaiting();
  void RetireHost(uint64_t address, uint64_t size_bytes);

  // Until what they overlap, or whose place they take, is unpinned.
  std::deque<HostWaiting> host_waiting_;
};

}  // namespace gpuloom::executor
