// SPDX-License-Identifier: Apache-2.0
// The driver's linker, which only one thread at a time may use: two threads of a process in it corrupt
// its heap (driver 580.159). A turn takes as long as a compilation, so the ring thread never takes one.
//
// A long compilation cannot be interrupted, so others must not depend on it: waiting for a turn has
// a timeout. And no tenant gets two turns in a row while another tenant waits.
//
// Safe from any thread. Waiting for a turn can be cancelled; a turn in progress cannot.
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
  // For PTX that can also be passed to the driver directly, which compiles concurrently.
  static constexpr std::chrono::seconds kPatience{2};
  // For work that needs the linker. Longer than any compilation that an honest program makes its user wait for.
  static constexpr std::chrono::seconds kLongPatience{60};

  // Held around every call of the linker. Make no call unless `taken`: otherwise `left` has become
  // true, or the timeout has expired. `tenant` is an identity, never dereferenced.
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

  // Call when some caller's `left` has become true.
  void Recheck() {
    const MutexLock lock(mutex_);
    changed_.NotifyAll();
  }

 private:
  // The first of a tenant other than the last one served; else the first.
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
  // Tenants, in the order in which they came.
  std::list<const void*> waiting_ GPULOOM_GUARDED_BY(mutex_);
};

}  // namespace gpuloom::executor
