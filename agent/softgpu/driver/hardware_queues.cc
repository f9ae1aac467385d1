// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/hardware_queues.h"

#include <algorithm>

namespace gpuloom::softgpu {

// Many streams' work may be in a queue, so nothing here looks at all of it.
void HardwareQueues::Queue::Push(uint64_t number, bool waits) {
  all.push_back(number);
  if (waits) waiting.push_back(number);
}

void HardwareQueues::Queue::Remove(uint64_t number) {
  for (std::deque<uint64_t>* numbers : {&all, &waiting}) {
    const auto found = std::lower_bound(numbers->begin(), numbers->end(), number);
    if (found != numbers->end() && *found == number) numbers->erase(found);
  }
}

HardwareQueues::Place HardwareQueues::Enter(const Place& last, bool waits) {
  const MutexLock lock(mutex_);
  Place place;
  place.number = ++entered_;
  const Queue& former = queues_[last.queue];
  const auto free = std::find_if(queues_.begin(), queues_.end(),
                                 [](const Queue& queue) { return queue.waiting.empty(); });
  // Behind its stream's last, but not behind what has come there since and waits for something else.
  const bool is_behind =
      std::binary_search(former.all.begin(), former.all.end(), last.number) &&
      (free == queues_.end() || former.waiting.empty() || former.waiting.back() <= last.number);
  if (is_behind) {
    place.queue = last.queue;
  } else if (free != queues_.end()) {
    place.queue = static_cast<uint32_t>(free - queues_.begin());
  } else {
    place.queue = static_cast<uint32_t>(entered_ % queues_.size());
  }
  queues_[place.queue].Push(place.number, waits);
  return place;
}

HardwareQueues::Place HardwareQueues::EnterAt(uint64_t number_of_stream, bool waits) {
  const MutexLock lock(mutex_);
  const Place place{static_cast<uint32_t>(number_of_stream % queues_.size()), ++entered_};
  queues_[place.queue].Push(place.number, waits);
  return place;
}

void HardwareQueues::Begin(const Place& place) {
  MutexLock lock(mutex_);
  Queue& queue = queues_[place.queue];
  left_.Wait(mutex_, [&]() GPULOOM_REQUIRES(mutex_) { return queue.all.front() == place.number; });
  queue.Remove(place.number);
  left_.NotifyAll();
}

void HardwareQueues::Leave(const Place& place) {
  const MutexLock lock(mutex_);
  queues_[place.queue].Remove(place.number);
  left_.NotifyAll();
}

}  // namespace gpuloom::softgpu
