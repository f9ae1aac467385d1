// SPDX-License-Identifier: Apache-2.0
// The hardware queues of a device, which all streams share. Work waits in one until it begins, so what waits for work
// before it, or for another stream, keeps waiting whatever came into the same queue after it, of whatever stream. A kernel
// leaves its queue when it begins, however long it runs. A stream gets a queue in which nothing has to wait if there is
// one. So on an H200; but there, kernels stand still a little sooner than with all queues taken, and copies beside half as
// many.
//
// Work enters in the order in which it is pushed, and waits for older work only: so the oldest can always begin.
//
// Safe from any thread.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class HardwareQueues {
 public:
  struct Place {
    uint32_t queue = 0;
    uint64_t number = 0;  // 0: in none
  };

  explicit HardwareQueues(int queues) : queues_(static_cast<size_t>(queues)) {}

  // `last`: of the same stream, or of what this goes with. `waits`: it cannot begin yet.
  Place Enter(const Place& last, bool waits);
  // Always in the same one.
  Place EnterAt(uint64_t number_of_stream, bool waits);
  // Returns when all that entered the queue before has left it, and leaves it.
  void Begin(const Place& place);
  // For work that is never begun.
  void Leave(const Place& place);

 private:
  // By number, which rise.
  struct Queue {
    std::deque<uint64_t> all;
    std::deque<uint64_t> waiting;  // those of them that cannot begin yet

    void Push(uint64_t number, bool waits);
    void Remove(uint64_t number);
  };

  Mutex mutex_;
  CondVar left_;
  std::vector<Queue> queues_ GPULOOM_GUARDED_BY(mutex_);
  uint64_t entered_ GPULOOM_GUARDED_BY(mutex_) = 0;
};

}  // namespace gpuloom::softgpu
