// SPDX-License-Identifier: Apache-2.0
// What executor and arbiter exchange about work. Plain values, safe to copy to any thread; times are nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gpuloom::arbiter {

enum class SessionId : uint32_t {};
constexpr size_t Index(SessionId session) { return static_cast<size_t>(session); }

// Pieces that go to the device one by one, or together as a chain or a graph. Their time is predicted when they are
// queued, and this figure stays with them until they are done, whatever is learned meanwhile.
struct Work {
  uint32_t pieces = 0;
  uint64_t predicted_ns = 0;  // the sum for all pieces
};

// One session may submit: pieces whose predictions add up to at most budget_ns, but always the first one, because it
// cannot be cut.
struct Order {
  SessionId session;
  uint64_t budget_ns;  // kUnbounded: everything that is queued
};

// For how long a session has had queued work that could not go. A held session (session.h) does not count as waiting.
struct Waits {
  uint64_t queue_ns = 0;      // others went first, or the device was full; includes throttled_ns
  uint64_t throttled_ns = 0;  // its ceiling, or its namespace's, was reached
};

// What a piece took lies between the first two, if it ended when it counts as ended. They are equal if no work of others was
// in its way.
struct Duration {
  uint64_t least_ns = 0;
  uint64_t most_ns = 0;
  uint64_t late_ns = 0;  // it may have ended up to so much earlier: nobody looked

  uint64_t surely_ns() const { return least_ns - (late_ns < least_ns ? late_ns : least_ns); }
};

}  // namespace gpuloom::arbiter
