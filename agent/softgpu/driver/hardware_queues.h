// SPDX-License-Identifier: Apache-2.0
// The hardware queues of a device, which all streams share. As on an H200: a stream holds one while work waits in it for
// work before it or for another stream; a single launch holds none, however long it runs, and so does an event. With all
// of them held nothing else begins. There, kernels stand still a little sooner, and copies beside half as many.
//
// Safe from any thread.
#pragma once

#include <atomic>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class HardwareQueues {
 public:
  explicit HardwareQueues(int queues) : queues_(queues) {}

  // Returns false if none is left, or somebody waits for one: then what is in the stream begins after WaitForOne.
  [[nodiscard]] bool TryHold(std::atomic<bool>& holds);
  void Release(std::atomic<bool>& holds);
  // Returns when fewer than all are held, or the stream has come to hold one.
  void WaitForOne(const std::atomic<bool>& holds);

 private:
  const int queues_;
  Mutex mutex_;
  CondVar changed_;
  int held_ GPULOOM_GUARDED_BY(mutex_) = 0;
  int waiting_ GPULOOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuloom::softgpu
