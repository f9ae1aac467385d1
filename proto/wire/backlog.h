// SPDX-License-Identifier: Apache-2.0
// How much incomplete work a tenant may have sent before its library makes callers wait, so that the executor never has
// to stop reading its ring.
//
// While much waits in a session's queues, the executor does not read its ring (agent/executor/session/session.cc). The
// ring is then one more queue, and all that follows waits, even a command that would unblock the others: one for
// another stream, or a piece of a copy for which a stream is held (shim/copy/queued_copy.h). So the tenant's library
// makes callers wait before that happens (shim/session/backlog.h). A library that does not hurts only its own tenant.
#pragma once

#include <cstdint>

namespace gpuloom::wire {

inline constexpr uint32_t kMostBacklogBytes = 32u << 20;
// Counted for each command besides its record.
inline constexpr uint32_t kBacklogBytesOfCommand = 1u << 10;
// Counted for a launch besides that, for each texture or surface reference of its library: the executor keeps their bindings with it.
inline constexpr uint32_t kBacklogBytesOfReference = 320;
// Of a stream with no more than this anything may be sent, whatever the others have.
inline constexpr uint32_t kMostBacklogBytesOfAny = 128u << 10;

}  // namespace gpuloom::wire
