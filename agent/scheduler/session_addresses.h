// SPDX-License-Identifier: Apache-2.0
// Which part of the device's and of the host's address window each session has (docs/design/addresses.md). A session's
// host range stays taken until its executor says that it has unmapped the arena, or is dead. A part of the scheduler;
// its thread only. Owns the windows; the session has its ranges, and after its end the executor the host one
// (Executor::arenas).
#pragma once

#include <string>

#include "agent/scheduler/address_window.h"
#include "agent/scheduler/scheduler_port.h"
#include "proto/control/connection.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

class SessionAddresses : public Part {
 public:
  explicit SessionAddresses(SchedulerPort* port) : Part(port) {}

  // Device and host range, or neither. Returns false with a message.
  [[nodiscard]] bool Take(Session* session, std::string* error);
  // The host range is returned only if the executor no longer has it mapped.
  void Return(const Session& session);
  void On(Executor* executor, const control::ArenaReturned& message, control::Incoming& in);
  // Frees the arenas that the executor has not returned. Call when it is dead.
  void FreeArenas(const Executor& executor);

 private:
  DividedWindow device_window_{kDeviceWindow, kNeededDeviceBytes, kAssuredDeviceBytes};
  DividedWindow host_window_{kHostWindow, kNeededHostBytes, kAssuredHostBytes};
};

}  // namespace gpuloom::scheduler
