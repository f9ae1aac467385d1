// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/large_free.h"

#include <thread>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// Below, freeing is a matter of microseconds.
constexpr size_t kWorthMovingBytes = 1u << 20;

// One thread for the process, made with the first large buffer.
class Freeing {
 public:
  Freeing() : thread_([this] { Run(); }) {}
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;
  ~Freeing() {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.NotifyAll();
    thread_.join();
  }

  void Take(std::vector<uint8_t>* bytes) {
    {
      const MutexLock lock(mutex_);
      waiting_.push_back(std::move(*bytes));
    }
    changed_.NotifyAll();
  }

 private:
  // Takes all that waits at a time, and frees it without the lock: Take must not wait for that.
  void Run() {
    MutexLock lock(mutex_);
    for (;;) {
      changed_.Wait(mutex_,
                    [this]() GPULOOM_REQUIRES(mutex_) { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::vector<std::vector<uint8_t>> taken;
      taken.swap(waiting_);
      lock.Unlock();
      taken.clear();
      lock.Lock();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<std::vector<uint8_t>> waiting_ GPULOOM_GUARDED_BY(mutex_);
  bool stopping_ GPULOOM_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace

void FreeElsewhere(std::vector<uint8_t> bytes) {
  // Freed here, with the argument.
  if (bytes.capacity() < kWorthMovingBytes) return;
  static Freeing freeing;
  freeing.Take(&bytes);
}

}  // namespace gpuloom::executor
