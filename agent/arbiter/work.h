// SPDX-License-Identifier: Apache-2.0
// What executor and arbiter tell each other about work. Plain values.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::arbiter {

enum class SessionId : uint32_t {};
constexpr size_t Index(SessionId session) { return static_cast<size_t>(session); }

// Pieces that go to the device one by one, or together as a chain or a graph. Their time is predicted
// when they are queued, and the same figure accompanies them until they are done, whatever is
// learnt meanwhile.
struct Work {
  uint32_t pieces = 0;
  uint64_t predicted_ns = 0;  // all of them together
};

// One session may submit now: pieces while the sum of their predictions stays within budget_ns, and the
// first one in any case, because it cannot be cut.
struct Order {
  SessionId session;
  uint64_t budget_ns;  // kUnbounded: as much as there is
};

// For how long a session has had queued work that might not go. Who is held (session.h) tells of none.
struct Waits {
  uint64_t queue_ns = 0;  // others went before, or the device was full; throttled_ns is part of it
  uint64_t throttled_ns = 0;  // its ceiling, or its namespace's, was reached
};

// What a piece took is between these two; equal where nothing of others was in its way.
struct Duration {
  uint64_t least_ns = 0;
  uint64_t most_ns = 0;
};

}  // namespace gpuloom::arbiter
