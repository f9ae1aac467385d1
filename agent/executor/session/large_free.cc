#include "agent/executor/session/large_free.h"

#include <condition_variable>
#include <mutex>
#include <thread>

namespace gpuloom::executor {
namespace {

// Below, freeing is a matter of microseconds.
constexpr size_t kLargeBytes = 1u << 20;

class Freeing {
 public:
  Freeing() : thread_([this] { Run(); }) {}
  Freeing(const Freeing&) = delete;
  Freeing& operator=(const Freeing&) = delete;
  ~Freeing() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Take(std::vector<uint8_t>* bytes) {
    {
      std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(*bytes));
    }
    changed_.notify_all();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      std::vector<std::vector<uint8_t>> taken;
      taken.swap(waiting_);
      lock.unlock();
      taken.clear();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<uint8_t>> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

void FreeElsewhere(std::vector<uint8_t> bytes) {
  if (bytes.capacity() < kLargeBytes) return;
  static Freeing freeing;
  freeing.Take(&bytes);
}

}  // namespace gpuloom::executor
