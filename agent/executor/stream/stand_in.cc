// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/stream/stand_in.h"

#include <chrono>

#include "proto/sync/mutex.h"

namespace gpuloom::executor {
namespace {

// Most launches return in some microseconds: nobody stands in for those.
constexpr std::chrono::microseconds kPatience{500};
constexpr std::chrono::microseconds kEvery{100};

}  // namespace

StandIn::~StandIn() {
  {
    const MutexLock lock(mutex_);
    ends_ = true;
  }
  changed_.NotifyOne();
  if (thread_.joinable()) thread_.join();
}

StandIn::Absence::Absence(StandIn* stand_in) : stand_in_(stand_in) {
  {
    const MutexLock lock(stand_in->mutex_);
    stand_in->absent_ = true;
  }
  if (!stand_in->thread_.joinable())
    stand_in->thread_ = std::thread([stand_in] { stand_in->Run(); });
  stand_in->changed_.NotifyOne();
}

StandIn::Absence::~Absence() {
  const MutexLock lock(stand_in_->mutex_);
  stand_in_->absent_ = false;
}

void StandIn::Run() {
  MutexLock lock(mutex_);
  while (!ends_) {
    changed_.Wait(mutex_, [this]() GPULOOM_REQUIRES(mutex_) { return absent_ || ends_; });
    for (auto pause = kPatience; absent_ && !ends_; pause = kEvery) {
      changed_.WaitFor(mutex_, pause, [this]() GPULOOM_REQUIRES(mutex_) { return ends_; });
      if (absent_) serve_();
    }
  }
}

}  // namespace gpuloom::executor
