// SPDX-License-Identifier: Apache-2.0
// For tests: a driver whose polls wait while it hangs. Safe from any thread. Polls own it, so that one that is left behind
// does: whoever is the last owner again knows that it has ended.
#pragma once

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {

class DriverGate {
 public:
  void Hang(bool hangs) {
    const MutexLock lock(mutex_);
    hangs_ = hangs;
    changed_.NotifyAll();
  }
  // A poll's.
  void Pass() {
    const MutexLock lock(mutex_);
    is_held_up_ = hangs_;
    changed_.NotifyAll();
    changed_.Wait(mutex_, [this]() GPULOOM_REQUIRES(mutex_) { return !hangs_; });
    is_held_up_ = false;
  }
  // Until a poll is held up.
  void AwaitHang() {
    const MutexLock lock(mutex_);
    changed_.Wait(mutex_, [this]() GPULOOM_REQUIRES(mutex_) { return is_held_up_; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool hangs_ GPULOOM_GUARDED_BY(mutex_) = false;
  bool is_held_up_ GPULOOM_GUARDED_BY(mutex_) = false;
};

}  // namespace gpuloom
