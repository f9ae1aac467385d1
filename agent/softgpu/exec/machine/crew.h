// SPDX-License-Identifier: Apache-2.0
// Threads that help to run the blocks of grids: one fewer than the processors that this process may use, shared by all
// grids that run. Started when first needed; they end with the process.
//
// Safe from any thread. Never destroyed, because streams may run grids while the process exits.
#pragma once

#include <cstdint>
#include <functional>
#include <list>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::softgpu {

class Crew {
 public:
  static Crew& Instance();

  // Sets how many threads run a grid, including the caller's: at least 1; 0 means the number of processors. Has no
  // effect after the first Help.
  void SetSize(uint32_t threads);
  [[nodiscard]] uint32_t size() const { return size_; }

  // While it lives, threads that have nothing else to do call `work`, which returns when nothing is left to do. The
  // destructor waits for the calls that have not returned.
  class Help {
   public:
    explicit Help(std::function<void()> work);
    ~Help();
    Help(const Help&) = delete;
    Help& operator=(const Help&) = delete;

   private:
    friend class Crew;
    const std::function<void()> work_;
    uint32_t inside_ = 0;  // calls of it that have not returned
  };

 private:
  Crew();
  void StartLocked() GPULOOM_REQUIRES(mutex_);
  void Serve();
  // Of the grids that can use more help, the one that has the least; nullptr if there is none.
  [[nodiscard]] Help* NextLocked() GPULOOM_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar wanted_;
  CondVar left_;
  std::list<Help*> open_ GPULOOM_GUARDED_BY(mutex_);
  bool started_ GPULOOM_GUARDED_BY(mutex_) = false;
  uint32_t size_;
};

}  // namespace gpuloom::softgpu
