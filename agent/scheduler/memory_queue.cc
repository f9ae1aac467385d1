// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/memory_queue.h"

#include <algorithm>
#include <set>

namespace gpuloom::scheduler {
namespace {

// The turn at a given time after the oldest request.
struct Turn {
  bool is_everybodys;
  MemoryQueue::Clock::duration end;  // counted as `waited`
};

// Everybody's turn, then the oldest's own, each a second; then both twice as long, and so on.
Turn TurnAt(MemoryQueue::Clock::duration waited) {
  MemoryQueue::Clock::duration end{}, length = MemoryQueue::kFirstTurn;
  for (;; length *= 2) {
    for (const bool is_everybodys : {true, false}) {
      end += length;
      if (waited < end) return {is_everybodys, end};
    }
  }
}

}  // namespace

bool MemoryQueue::HasRoomFor(const void* allocation) const {
  return requests_.size() < kMaxWaitingRequests && CountOf(allocation) < kMaxWaitingOfAllocation;
}

void MemoryQueue::Add(const Request& request) {
  if (requests_.empty()) oldest_since_ = request.since;
  requests_.emplace(++last_, request);
}

size_t MemoryQueue::CountOf(const void* allocation) const {
  return static_cast<size_t>(std::count_if(
      requests_.begin(), requests_.end(),
      [allocation](const auto& entry) { return entry.second.allocation == allocation; }));
}

bool MemoryQueue::MayOvertake(Time now) const {
  return requests_.empty() || TurnAt(now - oldest_since_).is_everybodys;
}

// If another becomes the oldest by it, the turns begin anew for that one, with one of everybody's.
MemoryQueue::Requests::iterator MemoryQueue::Remove(Requests::iterator request, Time now) {
  if (request == requests_.begin()) oldest_since_ = now;
  return requests_.erase(request);
}

// Wherever they stand in the queue: waits differ by policy, and change.
std::vector<MemoryQueue::Request> MemoryQueue::TakeExpired(Time now) {
  std::vector<Request> expired;
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (now < it->second.since + it->second.wait) {
      ++it;
      continue;
    }
    expired.push_back(it->second);
    it = Remove(it, now);
  }
  return expired;
}

std::vector<MemoryQueue::Request> MemoryQueue::TakeOf(uint64_t session_id, Time now) {
  std::vector<Request> theirs;
  for (auto it = requests_.begin(); it != requests_.end();) {
    if (it->second.session_id != session_id) {
      ++it;
      continue;
    }
    theirs.push_back(it->second);
    it = Remove(it, now);
  }
  return theirs;
}

// A request that found no room lowers the size from which requests are not tried, because those as
// large would find none either. An allocation's later requests wait for its first one that did not
// fit.
void MemoryQueue::Offer(Time now, const std::function<bool(const Request&)>& grant) {
  std::set<const void*> without_room;
  uint64_t too_large_bytes = UINT64_MAX;
  for (auto it = requests_.begin(); it != requests_.end();) {
    // When the oldest request has been served, the turns begin anew, with those of all.
    if (it != requests_.begin() && !MayOvertake(now)) return;
    const Request& request = it->second;
    if (without_room.contains(request.allocation)) {
      ++it;
    } else if (request.size_bytes < too_large_bytes && grant(request)) {
      it = Remove(it, now);
    } else {
      too_large_bytes = std::min(too_large_bytes, request.size_bytes);
      without_room.insert(request.allocation);
      ++it;
    }
  }
}

void MemoryQueue::SetWait(const void* allocation, std::chrono::milliseconds wait) {
  for (auto& [order, request] : requests_) {
    if (request.allocation == allocation) request.wait = wait;
  }
}

std::optional<MemoryQueue::Time> MemoryQueue::NextMoment(Time now) const {
  if (requests_.empty()) return std::nullopt;
  // The end of the present turn, since others may be tried then, or the first wait that is over.
  Time next = oldest_since_ + TurnAt(now - oldest_since_).end;
  for (const auto& [order, request] : requests_) {
    next = std::min(next, request.since + request.wait);
  }
  return next;
}

}  // namespace gpuloom::scheduler
