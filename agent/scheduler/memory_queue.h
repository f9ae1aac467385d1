// SPDX-License-Identifier: Apache-2.0
// Requests for device memory that their allocation's quota allows and for which the device has no room, in order of
// arrival. Pure bookkeeping, owned by MemoryGrants; the scheduler's thread only. `now` is any time that never goes back. Why requests
// are tried in this order: docs/design/memory.md.
//
//   queue.Add({…}, now);                          where it has room, and MayWait says so
//   memory has come back, or NextMoment:          for (… : queue.TakeExpired(now)) try it a last time
//                                                 queue.Offer(now, [](const Request& one) { … })
//   a session ends:                               for (… : queue.TakeOf(session)) answer it
//
// Order: only the oldest request of each allocation is tried, and none that is as large as one that has just found no
// room. So a tenant's many requests cost one try. A request that finds no room is overtaken by later ones; but the
// oldest of all has every second turn to itself, in which those who can wait do so, and the memory that comes back adds
// up for it. The first two turns last a second each, and every further pair twice as long as the one before, while the
// same request stays the oldest. So small requests, which have the other half of the time, do not starve a large one.
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

  // More requests than a program's threads make at once.
  static constexpr size_t kMaxWaitingOfAllocation = 64;
  // Each of these is tried when memory comes back, if it is its allocation's oldest.
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

  // False while the oldest request has a turn to itself. For requests that are not in the queue.
  bool MayOvertake(Time now) const;

  // Removes and returns the requests whose time is over.
  [[nodiscard]] std::vector<Request> TakeExpired(Time now);
  // Removes and returns a session's requests.
  [[nodiscard]] std::vector<Request> TakeOf(uint64_t session_id, Time now);
  // Calls `grant` for one request after the other. It returns true if the request has been answered and is to be
  // removed, false if the device had no room.
  void Offer(Time now, const std::function<bool(const Request&)>& grant);
  // The new limit counts from when each request arrived.
  void SetWait(const void* allocation, std::chrono::milliseconds wait);

  // When a request's time is over, or when a different set of requests may be tried. nullopt if none waits.
  std::optional<Time> NextMoment(Time now) const;

 private:
  using Requests = std::map<uint64_t, Request>;  // by order of arrival

  Requests::iterator Remove(Requests::iterator request, Time now);

  Requests requests_;
  uint64_t last_ = 0;
  Time oldest_since_{};  // when the oldest became that
};

}  // namespace gpuloom::scheduler
