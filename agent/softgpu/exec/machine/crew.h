// SPDX-License-Identifier: Apache-2.0
// Threads that help to run the blocks of grids: one less than the processors that this process may use,
// shared by all grids that run. Started when first needed; they end with the process.
//
// Safe from any thread; never destroyed, as streams may run grids while the process exits.
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

  // So many threads run a grid, the caller's among them: at least 1; 0 for the number of processors.
  // Counts until the first help.
  void SetSize(uint32_t threads);
  [[nodiscard]] uint32_t size() const { return size_; }

  // While it lives, threads that have nothing else to do call `work`, which returns when nothing
  // is left to do. The destructor waits for those that are inside.
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
  // The grid that has least help, of those that can use more, or null.
  [[nodiscard]] Help* NextLocked() GPULOOM_REQUIRES(mutex_);

  Mutex mutex_;
  CondVar wanted_;
  CondVar left_;
  std::list<Help*> open_ GPULOOM_GUARDED_BY(mutex_);
  bool started_ GPULOOM_GUARDED_BY(mutex_) = false;
  uint32_t size_;
};

}  // namespace gpuloom::softgpu
