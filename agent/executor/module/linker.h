// SPDX-License-Identifier: Apache-2.0
// The driver's linker, which one thread at a time may use: two threads of one process in it destroy its
// heap (driver 580.159). A turn takes as long as a compilation, so the ring thread never takes one.
//
// Whose compilation takes long cannot be hurried, so others must not depend on it: who waits has patience for so
// long only. And no tenant has two turns in a row while another waits.
//
// Safe from any thread. Whoever waits can be told to leave; whoever has the turn cannot be hurried.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {

class Linker {
 public:
  // For text that can be handed to the driver as it is instead, which compiles beside others.
  static constexpr std::chrono::seconds kPatience{2};
  // For what needs the linker. Longer than any compilation that an honest program makes its user wait for.
  static constexpr std::chrono::seconds kLongPatience{60};

  // Held around every call of the linker. Call nothing unless `taken`: otherwise `left` has become true, or the time
  // is over. `tenant` is an identity, never dereferenced.
  class Turn {
   public:
    Turn(Linker* linker, const void* tenant, const std::atomic<bool>& left,
         std::chrono::seconds patience)
        : linker_(linker) {
      MutexLock lock(linker_->mutex_);
      const auto self = linker_->waiting_.insert(linker_->waiting_.end(), tenant);
      taken_ =
          linker_->changed_.WaitFor(linker_->mutex_, patience,
                                    [&]() GPULOOM_REQUIRES(linker_->mutex_) {
                                      return left || (!linker_->taken_ && linker_->Next() == self);
                                    }) &&
          !left;
      linker_->waiting_.erase(self);
      if (taken_) {
        linker_->taken_ = true;
        linker_->last_ = tenant;
      } else {
        linker_->changed_.NotifyAll();
      }
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (!taken_) return;
      const MutexLock lock(linker_->mutex_);
      linker_->taken_ = false;
      linker_->changed_.NotifyAll();
    }
    bool taken() const { return taken_; }

   private:
    Linker* const linker_;
    bool taken_ = false;
  };

  // Somebody's `left` has become true.
  void LookAgain() {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }

 private:
  // The first of another tenant than the last; else the first.
  std::list<const void*>::iterator Next() GPULOOM_REQUIRES(mutex_) {
    const auto other = std::find_if(waiting_.begin(), waiting_.end(),
                                    [this](const void* tenant)
                                        GPULOOM_REQUIRES(mutex_) { return tenant != last_; });
    return other != waiting_.end() ? other : waiting_.begin();
  }

  Mutex mutex_;
  CondVar changed_;
  bool taken_ GPULOOM_GUARDED_BY(mutex_) = false;
  const void* last_ GPULOOM_GUARDED_BY(mutex_) = nullptr;  // whose turn it was
  std::list<const void*> waiting_
      GPULOOM_GUARDED_BY(mutex_);  // tenants, in the order in which they came
};

}  // namespace gpuloom::executor
