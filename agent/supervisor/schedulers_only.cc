// SPDX-License-Identifier: Apache-2.0
#include "agent/supervisor/schedulers_only.h"

namespace gpuloom {
namespace {

constexpr Clock::Duration kTick = std::chrono::milliseconds(200);

}  // namespace

void RunSchedulersOnly(Supervisor* supervisor, Clock* clock, const std::function<void()>& each_time,
                       const std::atomic<bool>& stop_requested) {
  while (!stop_requested) {
    each_time();
    supervisor->Tick(clock->Now());
    clock->SleepFor(kTick);
  }
  supervisor->RequestStop();
  const Clock::Time deadline = clock->Now() + kStopTimeout;
  while (supervisor->IsAnyRunning() && clock->Now() < deadline) clock->SleepFor(kTick);
}

}  // namespace gpuloom
