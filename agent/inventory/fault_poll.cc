// SPDX-License-Identifier: Apache-2.0
#include "agent/inventory/fault_poll.h"

#include <spdlog/spdlog.h>

#include <atomic>
#include <utility>

#include "proto/sync/cond_var.h"
#include "proto/sync/mutex.h"

namespace gpuloom {
namespace {

// Of the process, because nobody is left who has the objects.
std::atomic<int> left_behind = 0;

}  // namespace

struct FaultPoll::State {
  Mutex mutex;
  CondVar changed;
  bool is_under_way GPULOOM_GUARDED_BY(mutex) = false;
  bool is_over GPULOOM_GUARDED_BY(mutex) = false;    // the thread is to end
  bool has_ended GPULOOM_GUARDED_BY(mutex) = false;  // it is about to, and uses the driver no more
  bool is_left_behind GPULOOM_GUARDED_BY(mutex) = false;
  std::optional<std::vector<GpuFault>> faults GPULOOM_GUARDED_BY(mutex);
};

FaultPoll::FaultPoll(std::function<std::vector<GpuFault>()> poll)
    : state_(std::make_shared<State>()),
      thread_([state = state_, poll = std::move(poll)]() mutable {
        Run(state.get(), std::exchange(poll, nullptr));
      }) {}

FaultPoll::~FaultPoll() {
  bool has_ended = false;
  {
    const MutexLock lock(state_->mutex);
    state_->is_over = true;
    state_->changed.NotifyAll();
    has_ended = state_->changed.WaitFor(
        state_->mutex, kEndPatience,
        [this]() GPULOOM_REQUIRES(state_->mutex) { return state_->has_ended; });
    state_->is_left_behind = !has_ended;
    if (!has_ended) ++left_behind;
  }
  if (has_ended) {
    thread_.join();
    return;
  }
  spdlog::warn(
      "nvml: the driver still does not answer: the thread that waits for it is left behind, and "
      "ends with this process or when the driver answers");
  thread_.detach();
}

std::optional<std::vector<GpuFault>> FaultPoll::Poll(std::chrono::milliseconds patience) {
  const MutexLock lock(state_->mutex);
  if (!state_->faults.has_value()) {
    state_->is_under_way = true;
    state_->changed.NotifyAll();
    (void)state_->changed.WaitFor(
        state_->mutex, patience,
        [this]() GPULOOM_REQUIRES(state_->mutex) { return state_->faults.has_value(); });
  }
  return std::exchange(state_->faults, std::nullopt);
}

void FaultPoll::Run(State* state, std::function<std::vector<GpuFault>()> poll) {
  MutexLock lock(state->mutex);
  for (;;) {
    state->changed.Wait(state->mutex, [state]() GPULOOM_REQUIRES(state->mutex) {
      return state->is_over || state->is_under_way;
    });
    if (state->is_over) break;
    lock.Unlock();
    std::vector<GpuFault> faults = poll();
    lock.Lock();
    state->is_under_way = false;
    state->faults = std::move(faults);
    state->changed.NotifyAll();
  }
  lock.Unlock();
  // It closes NVML, where a driver may hang as well.
  poll = nullptr;
  lock.Lock();
  state->has_ended = true;
  state->changed.NotifyAll();
  if (state->is_left_behind) --left_behind;
}

bool FaultPoll::IsOneLeftBehind() { return left_behind != 0; }

}  // namespace gpuloom
