#include "agent/executor/stream/stand_in.h"

#include <chrono>

namespace gpuloom::executor {
namespace {

// Most launches return in some microseconds: nobody stands in for those.
constexpr std::chrono::microseconds kPatience{500};
constexpr std::chrono::microseconds kEvery{100};

}  // namespace

StandIn::~StandIn() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ends_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

StandIn::Absence::Absence(StandIn* stand_in) : stand_in_(stand_in) {
  {
    std::lock_guard<std::mutex> lock(stand_in->mutex_);
    stand_in->absent_ = true;
  }
  if (!stand_in->thread_.joinable())
    stand_in->thread_ = std::thread([stand_in] { stand_in->Run(); });
  stand_in->changed_.notify_one();
}

StandIn::Absence::~Absence() {
  std::lock_guard<std::mutex> lock(stand_in_->mutex_);
  stand_in_->absent_ = false;
}

void StandIn::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ends_) {
    changed_.wait(lock, [this] { return absent_ || ends_; });
    for (auto pause = kPatience; absent_ && !ends_; pause = kEvery) {
      changed_.wait_for(lock, pause, [this] { return ends_; });
      if (absent_) serve_();
    }
  }
}

}  // namespace gpuloom::executor
