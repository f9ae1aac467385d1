// SPDX-License-Identifier: Apache-2.0
#include "agent/simulator/device.h"

#include <algorithm>

namespace gpuloom::simulator {

// Only the first kernel of a stream is in waiting_ or running_; the others wait in their stream.
void Device::Submit(const Kernel& kernel, uint64_t now_ns) {
  if (kernel.stream >= streams_.size()) streams_.resize(kernel.stream + 1);
  Stream& stream = streams_[kernel.stream];
  Waiting waiting{kernel, orders_++};
  // One that is wider than the device would never begin.
  waiting.kernel.width = std::clamp(kernel.width, 1u, capacity_);
  if (stream.busy) {
    stream.behind.push_back(waiting);
    return;
  }
  stream.busy = true;
  waiting_[std::min(kernel.priority, kPriorities - 1)].push(waiting);
  BeginWhatFits(now_ns);
}

uint64_t Device::next_end_ns() const {
  return running_.empty() ? UINT64_MAX : running_.top().end_ns;
}

// Begins kernels in the order of their classes, then of their arrival, until the first that has to
// wait: whatever is behind it waits, too.
void Device::BeginWhatFits(uint64_t now_ns) {
  for (auto& waiting : waiting_) {
    while (!waiting.empty()) {
      const Kernel& kernel = waiting.top().kernel;
      const bool other_context = !running_.empty() && kernel.context != context_;
      // Contexts take turns: one begins only when nothing of another one runs.
      // Kernels of lower priority may not overtake it, either.
      if (other_context || used_ + kernel.width > capacity_) return;
      if (running_.empty()) busy_since_ns_ = now_ns;
      context_ = kernel.context;
      used_ += kernel.width;
      const Execution execution{kernel, now_ns, now_ns + kernel.length_ns};
      waiting.pop();
      running_.push(execution);
      if (begun_) begun_(execution);
    }
  }
}

// One end at a time. What it makes room for begins at the moment of the end, whenever it is asked
// about.
std::optional<Execution> Device::TakeEnded(uint64_t now_ns) {
  if (next_end_ns() > now_ns) return std::nullopt;
  const Execution ended = running_.top();
  running_.pop();
  used_ -= ended.kernel.width;
  if (running_.empty()) busy_ns_ += ended.end_ns - busy_since_ns_;
  Stream& stream = streams_[ended.kernel.stream];
  // The stream's next kernel queues up by its arrival, not by the end of the one before.
  if (stream.behind.empty()) {
    stream.busy = false;
  } else {
    const Waiting& next = stream.behind.front();
    waiting_[std::min(next.kernel.priority, kPriorities - 1)].push(next);
    stream.behind.pop_front();
  }
  BeginWhatFits(ended.end_ns);
  return ended;
}

}  // namespace gpuloom::simulator
