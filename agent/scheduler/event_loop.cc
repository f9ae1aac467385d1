// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/event_loop.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "agent/scheduler/log.h"

namespace gpuloom::scheduler {
namespace {

using Seconds = std::chrono::duration<double>;

// What the thread has used so far, to tell a step that computed from one that the kernel held up.
struct Used {
  double processor_s;
  int64_t disk_waits;
};

Used UsedByThread() {
  rusage usage = {};
  getrusage(RUSAGE_THREAD, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_majflt};
}

}  // namespace

// Times one handler after the other, in the order in which they run.
class EventLoop::StepClock {
 public:
  // The loop has just come back from its sleep, which was to end at `wake` at the latest.
  StepClock(Clock::duration slow, Clock::time_point wake) : slow_(slow) {
    if (began_ - wake < slow_) return;
    char text[160];
    snprintf(text, sizeof(text),
             "woke %.1f s late, so nobody was served: is the machine short of processors?",
             Seconds(began_ - wake).count());
    LogWarning(text);
  }

  // The step ends here, and the next one begins.
  void End(const SourceLocation& place) {
    const Clock::time_point now = Clock::now();
    if (now - began_ >= slow_) Complain(place, now - began_);
    began_ = now;
  }

 private:
  void Complain(const SourceLocation& place, Clock::duration took) {
    const Used used = UsedByThread();
    const char* name = strrchr(place.file, '/');
    char text[320];
    snprintf(text, sizeof(text),
             "a step took %.1f s, so nobody was served (%s:%d; since the last sleep %.1f s of "
             "processor time and %lld pages from the disk): is the machine short of memory or "
             "processors, is its disk busy, does the driver hang?",
             Seconds(took).count(), name == nullptr ? place.file : name + 1, place.line,
             used.processor_s - used_.processor_s,
             static_cast<long long>(used.disk_waits - used_.disk_waits));
    LogWarning(text);
  }

  const Clock::duration slow_;
  Clock::time_point began_ = Clock::now();
  const Used used_ = UsedByThread();
};

Watch::Watch(Watch&& other) noexcept : loop_(std::exchange(other.loop_, nullptr)), id_(other.id_) {}

Watch& Watch::operator=(Watch&& other) noexcept {
  if (this != &other) {
    End();
    loop_ = std::exchange(other.loop_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

// Only for one's own watch: the id is in the table for as long as the Watch is active.
void Watch::Change(uint32_t events) {
  if (loop_ == nullptr) return;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id_;
  epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_MOD, loop_->watched_.at(id_)->fd, &event);
}

// The descriptor is still open here (event_loop.h), so the kernel forgets exactly this one.
void Watch::End() {
  if (loop_ == nullptr) return;
  const auto it = loop_->watched_.find(id_);
  if (it != loop_->watched_.end()) {
    epoll_ctl(loop_->epoll_.get(), EPOLL_CTL_DEL, it->second->fd, nullptr);
    loop_->watched_.erase(it);
  }
  loop_ = nullptr;
}

Timer::Timer(Timer&& other) noexcept : loop_(std::exchange(other.loop_, nullptr)), id_(other.id_) {}

Timer& Timer::operator=(Timer&& other) noexcept {
  if (this != &other) {
    Cancel();
    loop_ = std::exchange(other.loop_, nullptr);
    id_ = other.id_;
  }
  return *this;
}

// Timers are looked up by id, linearly: there are about as many as sessions.
bool Timer::active() const {
  return loop_ != nullptr && std::any_of(loop_->timers_.begin(), loop_->timers_.end(),
                                         [&](const auto& t) { return t.second.id == id_; });
}

void Timer::Cancel() {
  if (loop_ == nullptr) return;
  auto& timers = loop_->timers_;
  const auto it =
      std::find_if(timers.begin(), timers.end(), [&](const auto& t) { return t.second.id == id_; });
  if (it != timers.end()) timers.erase(it);
  loop_ = nullptr;
}

EventLoop::EventLoop(Clock::duration slow_step)
    : slow_step_(slow_step), epoll_(epoll_create1(EPOLL_CLOEXEC)) {}

Watch EventLoop::WatchFd(int fd, uint32_t events, std::function<void(uint32_t)> handler,
                         SourceLocation place) {
  const uint64_t id = ++last_id_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  // A watch that is not active: its handler never runs, which its owner notices by time-outs only.
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) return Watch();
  watched_.emplace(id, std::make_shared<Watched>(Watched{fd, std::move(handler), place}));
  return Watch(this, id);
}

Timer EventLoop::After(Clock::duration delay, std::function<void()> handler, SourceLocation place) {
  const uint64_t id = ++last_id_;
  // Absolute times, so that a loop that was busy fires what is due in the right order.
  timers_.emplace(Clock::now() + delay, Pending{id, std::move(handler), place});
  return Timer(this, id);
}

void EventLoop::Run() {
  while (!stopped_) RunOnce(std::chrono::hours(1));
}

void EventLoop::StayAwake(Clock::duration time) {
  constexpr unsigned kManyProcessors = 8;
  static const bool kHasMany = std::thread::hardware_concurrency() >= kManyProcessors;
  if (kHasMany) awake_until_ = Clock::now() + time;
}

void EventLoop::RunOnce(Clock::duration limit) {
  const Clock::time_point now = Clock::now();
  Clock::time_point wake = now < awake_until_ ? now : now + limit;
  if (!timers_.empty()) wake = std::min(wake, timers_.begin()->first);
  // Rounded up: waking before the first timer is due would spin.
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(wake - now);
  epoll_event events[64];
  const int count =
      epoll_wait(epoll_.get(), events, 64, static_cast<int>(std::max<int64_t>(0, wait.count())));
  // What was due before that is late because of a step, which has been named.
  StepClock steps(slow_step_, std::max(wake, now));
  // The kernel reports events in no meaningful order. Hang-ups are handled first, so that whoever
  // comes after another has gone can have what that one had.
  std::stable_partition(events, events + std::max(0, count),
                        [](const epoll_event& event) { return (event.events & EPOLLHUP) != 0; });
  // Stop inside a handler ends the round: what comes after may use what has just been torn down.
  for (int i = 0; i < count && !stopped_; ++i) {
    const uint64_t id = events[i].data.u64;  // a copy: the kernel's structure is packed
    const auto it = watched_.find(id);
    if (it == watched_.end()) continue;
    const std::shared_ptr<Watched> kept = it->second;  // the handler may end its own watch
    kept->handler(events[i].events);
    steps.End(kept->place);
  }
  // After the events: a message that is there already counts before the deadline for it.
  FireTimers(&steps);
}

void EventLoop::FireTimers(StepClock* steps) {
  const Clock::time_point now = Clock::now();
  while (!stopped_ && !timers_.empty() && timers_.begin()->first <= now) {
    // Taken out before it is called: the handler may start and cancel timers, its own included.
    auto node = timers_.extract(timers_.begin());
    node.mapped().handler();
    steps->End(node.mapped().place);
  }
}

}  // namespace gpuloom::scheduler
