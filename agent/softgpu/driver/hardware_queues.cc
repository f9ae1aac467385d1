// SPDX-License-Identifier: Apache-2.0
#include "agent/softgpu/driver/hardware_queues.h"

namespace gpuloom::softgpu {

bool HardwareQueues::TryHold(std::atomic<bool>& holds) {
  const MutexLock lock(mutex_);
  // Whoever waits is older: what holds one now may be waiting for it.
  if (held_ >= queues_ || waiting_ != 0) return false;
  ++held_;
  holds = true;
  return true;
}

void HardwareQueues::Release(std::atomic<bool>& holds) {
  const MutexLock lock(mutex_);
  --held_;
  holds = false;
  changed_.NotifyAll();
}

void HardwareQueues::WaitForOne(const std::atomic<bool>& holds) {
  MutexLock lock(mutex_);
  ++waiting_;
  changed_.Wait(mutex_, [&]() GPULOOM_REQUIRES(mutex_) { return held_ < queues_ || holds.load(); });
  --waiting_;
}

}  // namespace gpuloom::softgpu
