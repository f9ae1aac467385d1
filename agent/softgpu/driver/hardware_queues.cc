// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/hardware_queues.h"

#include <algorithm>

namespace gpuloom::softgpu {

HardwareQueues::Place HardwareQueues::Enter(const Place& last, bool waits) {
  const MutexLock lock(mutex_);
  Place place;
  place.number = ++entered_;
  const Queue& former = queues_[last.queue];
  const auto free = std::find_if(queues_.begin(), queues_.end(), [](const Queue& queue) {
    return std::none_of(queue.begin(), queue.end(), [](const Waiting& one) { return one.waits; });
  });
  const auto before = std::find_if(former.begin(), former.end(),
                                   [&](const Waiting& one) { return one.number == last.number; });
  // Behind its stream's last, but not behind what has come there since and waits for something else.
  const bool is_behind =
      before != former.end() &&
      (free == queues_.end() ||
       std::none_of(before + 1, former.end(), [](const Waiting& one) { return one.waits; }));
  if (is_behind) {
    place.queue = last.queue;
  } else if (free != queues_.end()) {
    place.queue = static_cast<uint32_t>(free - queues_.begin());
  } else {
    place.queue = static_cast<uint32_t>(entered_ % queues_.size());
  }
  queues_[place.queue].push_back({place.number, waits});
  return place;
}

HardwareQueues::Place HardwareQueues::EnterAt(uint64_t number_of_stream, bool waits) {
  const MutexLock lock(mutex_);
  const Place place{static_cast<uint32_t>(number_of_stream % queues_.size()), ++entered_};
  queues_[place.queue].push_back({place.number, waits});
  return place;
}

void HardwareQueues::Begin(const Place& place) {
  MutexLock lock(mutex_);
  Queue& queue = queues_[place.queue];
  left_.Wait(mutex_,
             [&]() GPULOOM_REQUIRES(mutex_) { return queue.front().number == place.number; });
  queue.pop_front();
  left_.NotifyAll();
}

void HardwareQueues::Leave(const Place& place) {
  const MutexLock lock(mutex_);
  std::erase_if(queues_[place.queue],
                [&](const Waiting& one) { return one.number == place.number; });
  left_.NotifyAll();
}

}  // namespace gpuloom::softgpu
