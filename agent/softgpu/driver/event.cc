// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/event.h"

#include <chrono>
#include <utility>

#include "agent/softgpu/driver/context.h"
#include "agent/softgpu/driver/registry.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

void Recording::Now() {
  time_ns.store(std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1));
}

void Event::SetLatest(std::shared_ptr<Recording> recording) {
  const MutexLock lock(mutex_);
  latest_ = std::move(recording);
}

void Event::Record(Stream& stream, std::vector<Point> after) {
  auto recording = std::make_shared<Recording>();
  Work work;
  // The time is set even after a fault: a thread that waits for the event reads it as soon as the
  // point is done.
  work.even_after_fault = true;
  work.has_time = (flags & CU_EVENT_DISABLE_TIMING) == 0;
  work.after = std::move(after);
  work.run = [recording] { recording->Now(); };
  // Held while enqueuing, so that the latest recording is the one that was enqueued last.
  const MutexLock lock(mutex_);
  recording->point = stream.context.Enqueue(stream, std::move(work));
  latest_ = std::move(recording);
}

std::shared_ptr<Recording> Event::Latest() {
  const MutexLock lock(mutex_);
  return latest_;
}

void DestroyEventsOf(const Context& context) {
  Registry<Event>::Instance().TakeIf(
      [&](const Event& event) { return &event.context == &context; });
}

}  // namespace gpuloom::softgpu
