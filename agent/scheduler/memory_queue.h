// SPDX-License-Identifier: Apache-2.0
// Requests for device memory that their allocation's quota allows and the device has no room for,
// in order of arrival. Pure bookkeeping; `now` is any time that never goes back. What is tried, and
// why: docs/design/memory.md.
//
//   queue.Add({…}, now);                          where it has room, and MayWait says so
//   memory has come back, or NextMoment:          for (… : queue.TakeExpired(now)) try it a last time
//                                                 queue.Offer(now, [](const Request& one) { … })
//   a session ends:                               for (… : queue.TakeOf(session)) answer it
//
// Order. Of each allocation only the oldest is tried, and none that is as large as one that has
// just found no room: so a tenant's many requests cost one try. One that finds no room is overtaken
// by later ones; but the oldest of all has every second turn to itself, in which those who can wait
// do so, and what comes back adds up for it. Turns last a second at first and grow to twice that
// while it stays the oldest. So a large one is not starved by small ones, which have the other half
// of the time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

namespace gpuloom::scheduler {

class MemoryQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // More than a program's threads ask for at once.
  static constexpr size_t kMaxWaitingOfAllocation = 64;
  // Each is tried when memory comes back, if it is its allocation's oldest.
  static constexpr size_t kMaxWaitingRequests = 1024;
  static constexpr std::chrono::seconds kFirstTurn{1};

  struct Request {
    const void* allocation;  // only compared
    uint64_t executor_id;
    uint64_t session_id;
    uint64_t size_bytes;
    uint32_t number;  // the executor's
    Time since;
    std::chrono::milliseconds wait;
  };

  bool empty() const { return requests_.empty(); }
  bool HasRoomFor(const void* allocation) const;
  void Add(const Request& request);
  size_t CountOf(const void* allocation) const;

  // False while the oldest has a turn to itself. For requests that are not in the queue.
  bool MayOvertake(Time now) const;

  // Removes those whose time is over.
  [[nodiscard]] std::vector<Request> TakeExpired(Time now);
  // Removes a session's.
  [[nodiscard]] std::vector<Request> TakeOf(uint64_t session_id, Time now);
  // Calls `grant` for one after the other. True: it has been answered, and is removed. False: the
  // device had no room.
  void Offer(Time now, const std::function<bool(const Request&)>& grant);
  // Counted from each one's beginning.
  void SetWait(const void* allocation, std::chrono::milliseconds wait);

  // When a request's time is over, or others may be tried than now. None if no request waits.
  std::optional<Time> NextMoment(Time now) const;

 private:
  using Requests = std::map<uint64_t, Request>;  // by order of arrival

  Requests::iterator Remove(Requests::iterator request, Time now);

  Requests requests_;
  uint64_t last_ = 0;
  Time oldest_since_{};  // when the oldest became that
};

}  // namespace gpuloom::scheduler
