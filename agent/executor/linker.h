// The driver's linker, which one thread at a time may use: two threads of one process in it destroy its
// heap (driver 580.159). A turn takes as long as a compilation, so the ring thread never takes one.
//
// Safe from any thread. Whoever waits can be told to leave; whoever has the turn cannot be hurried.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace gpuloom::executor {

class Linker {
 public:
  // Held around every call of the linker. Without `taken` nothing may be called: `left` has become true.
  class Turn {
   public:
    Turn(Linker* linker, const std::atomic<bool>& left) : linker_(linker) {
      std::unique_lock lock(linker_->mutex_);
      linker_->changed_.wait(lock, [&] { return left || !linker_->taken_; });
      taken_ = !left;
      if (taken_) linker_->taken_ = true;
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn() {
      if (!taken_) return;
      std::lock_guard lock(linker_->mutex_);
      linker_->taken_ = false;
      linker_->changed_.notify_all();
    }
    bool taken() const { return taken_; }

   private:
    Linker* const linker_;
    bool taken_ = false;
  };

  // Somebody's `left` has become true.
  void LookAgain() {
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool taken_ = false;
};

}  // namespace gpuloom::executor
