// SPDX-License-Identifier: Apache-2.0
// A connection to the control socket: the agent's or a command's. It is trusted. Owned by Controllers, which deletes it
// when the connection has closed; plain state, the scheduler's thread only.
#pragma once

#include <cstdint>
#include <memory>

#include "agent/scheduler/peer.h"

namespace gpuloom::scheduler {

struct Controller {
  uint64_t id = 0;
  std::unique_ptr<Peer> peer;
  bool greeted = false;  // its ControlHello was accepted
};

}  // namespace gpuloom::scheduler
