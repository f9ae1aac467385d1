// SPDX-License-Identifier: Apache-2.0
// Events: a point of a stream, and the time when it was reached.
//
// Each record makes a new Recording. A wait for the event waits for the recording that was the
// latest when it was enqueued, so recording again does not disturb waits. Safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "agent/softgpu/driver/stream.h"
#include "proto/cuda/cuda_all.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

struct Recording {
  Point point;
  std::atomic<int64_t> time_ns{0};  // monotonic clock; set before the point is done
  void Now();
};

class Event {
 public:
  Event(Context& of, unsigned with_flags) : context(of), flags(with_flags) {}

  // Recorded behind what the stream holds, and behind `after`.
  void Record(Stream& stream, std::vector<Point> after = {});
  // A recording made elsewhere, by a graph.
  void SetLatest(std::shared_ptr<Recording> recording);
  // Empty when the event was never recorded.
  std::shared_ptr<Recording> Latest();

  Context& context;
  const unsigned flags;

 private:
  Mutex mutex_;
  std::shared_ptr<Recording> latest_ GPULOOM_GUARDED_BY(mutex_);
};

void DestroyEventsOf(const Context& context);

}  // namespace gpuloom::softgpu
