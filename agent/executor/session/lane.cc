// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/lane.h"

#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

void Lane::Post(std::function<void()> work, std::function<void()> done) {
  waiting_.emplace_back(std::move(work), std::move(done));
  if (!busy_) Next();
}

void Lane::PostNext(std::function<void()> work, std::function<void()> done) {
  waiting_.emplace_front(std::move(work), std::move(done));
  if (!busy_) Next();
}

// One job at a time is with the pool. `done` may post to this lane: that job waits, because busy_
// is still set.
void Lane::Next() {
  if (waiting_.empty()) {
    busy_ = false;
    return;
  }
  busy_ = true;
  auto [work, done] = std::move(waiting_.front());
  waiting_.pop_front();
  pool_->Post(
      std::move(work),
      [this, done = std::move(done)] {
        done();
        Next();
      },
      this, tenant_);
}

void Lane::Leave() {
  waiting_.clear();
  // If the job had not begun the lane is idle at once; otherwise it is when the job's `done` has
  // run.
  if (busy_ && pool_->Leave(this)) busy_ = false;
}

}  // namespace gpuloom::executor
