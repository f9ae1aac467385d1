// SPDX-License-Identifier: Apache-2.0
// How much of its streams' work a tenant may have sent and not seen done, and the executor goes on reading its ring.
//
// With much waiting in a session's queues the executor does not read its ring (agent/executor/session/session.cc): then
// the ring is the queue, and whatever comes next waits, even what would let the queues go on: a command for another
// stream, or a piece of a copy for which a stream is held (shim/copy/queued_copy.h). So a tenant's library has its
// callers wait before that (shim/session/backlog.h). A tenant that does not, hurts only itself.
#pragma once

#include <cstdint>

namespace gpuloom::wire {

inline constexpr uint32_t kMostBacklogBytes = 32u << 20;
// A command counts as so many bytes besides its record.
inline constexpr uint32_t kBacklogBytesOfCommand = 1u << 10;
// Of a stream with no more than this anything may be sent, whatever the others have.
inline constexpr uint32_t kMostBacklogBytesOfAny = 128u << 10;

}  // namespace gpuloom::wire
