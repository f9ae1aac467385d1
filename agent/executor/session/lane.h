// SPDX-License-Identifier: Apache-2.0
// Runs the jobs of one session in order, one at a time, on a pool's threads (work_pool.h), so that a session with many
// slow jobs occupies at most one thread. Ring thread only. Owned by the session; `pool` outlives it, and `tenant` is
// only compared. `work` runs on a thread of the pool and must not touch the ring thread's data; `done` runs on the ring
// thread.
#pragma once

#include <deque>
#include <functional>
#include <utility>

namespace gpuloom::executor {

class WorkPool;

class Lane {
 public:
  explicit Lane(WorkPool* pool, const void* tenant = nullptr) : pool_(pool), tenant_(tenant) {}

  // `done` runs before the lane's next job begins. The lane must live until it is idle.
  void Post(std::function<void()> work, std::function<void()> done);
  // Posts ahead of everything else that waits: for a `done` that continues what its job began.
  void PostNext(std::function<void()> work, std::function<void()> done);
  // Drops what has not begun. Running work goes on, and its `done` is called as usual.
  void Leave();
  bool Idle() const { return !busy_; }

 private:
  void Next();

  WorkPool* pool_;
  const void* tenant_;
  std::deque<std::pair<std::function<void()>, std::function<void()>>> waiting_;
  bool busy_ = false;
};

}  // namespace gpuloom::executor
