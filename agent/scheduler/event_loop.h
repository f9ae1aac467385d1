// SPDX-License-Identifier: Apache-2.0
// The scheduler's one thread: watched descriptors and timers, over epoll. Everything runs on the
// thread that calls Run; nothing here is thread-safe. Handlers may watch, unwatch, start and cancel
// anything, including themselves.
//
//   Watch watch = loop.WatchFd(fd, EPOLLIN, [](uint32_t events) { … });   // ends with `watch`
//   Timer timer = loop.After(5s, [] { … });                               // cancelled with `timer`
//
// A Watch must end before its descriptor is closed: declare it after the descriptor. Watches and timers must end before
// the loop.
//
// While one handler runs, every tenant waits. A handler that took long is logged with the place in the source that
// registered it, because nobody could find it afterwards: "a step took 4.3 s, …".
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>

#include "proto/channel/unique_fd.h"

namespace gpuloom::scheduler {

class EventLoop;

class Watch {
 public:
  Watch() = default;
  Watch(Watch&& other) noexcept;
  Watch& operator=(Watch&& other) noexcept;
  ~Watch() { End(); }
  // Sets the events to watch from now on; 0 keeps only EPOLLHUP and EPOLLERR.
  void Change(uint32_t events);
  void End();
  bool active() const { return loop_ != nullptr; }

 private:
  friend class EventLoop;
  Watch(EventLoop* loop, uint64_t id) : loop_(loop), id_(id) {}
  EventLoop* loop_ = nullptr;
  uint64_t id_ = 0;
};

class Timer {
 public:
  Timer() = default;
  Timer(Timer&& other) noexcept;
  Timer& operator=(Timer&& other) noexcept;
  ~Timer() { Cancel(); }
  void Cancel();
  // False once it has fired.
  bool active() const;

 private:
  friend class EventLoop;
  Timer(EventLoop* loop, uint64_t id) : loop_(loop), id_(id) {}
  EventLoop* loop_ = nullptr;
  uint64_t id_ = 0;
};

class EventLoop {
 public:
  using Clock = std::chrono::steady_clock;

  // A handler that takes `slow_step` or longer is logged, and so is an awakening that is as late. valid() is false when
  // the kernel gave no epoll instance.
  explicit EventLoop(Clock::duration slow_step = std::chrono::seconds(1));
  bool valid() const { return epoll_.valid(); }

  // Where in the source a handler was registered.
  struct SourceLocation {
    const char* file;
    int line;
  };

  [[nodiscard]] Watch WatchFd(int fd, uint32_t events, std::function<void(uint32_t)> handler,
                              SourceLocation place = {__builtin_FILE(), __builtin_LINE()});
  [[nodiscard]] Timer After(Clock::duration delay, std::function<void()> handler,
                            SourceLocation place = {__builtin_FILE(), __builtin_LINE()});

  // Runs until Stop is called.
  void Run();
  void Stop() { stopped_ = true; }
  // The loop polls without sleeping for `time`, because more events are expected at once. Does nothing on a machine
  // with few processors.
  void StayAwake(Clock::duration time);
  // Waits once, for at most `limit`: for tests that check state between steps.
  void RunOnce(Clock::duration limit);

 private:
  friend class Watch;
  friend class Timer;
  struct Watched {
    int fd;
    std::function<void(uint32_t)> handler;
    SourceLocation place;
  };
  struct Pending {
    uint64_t id;
    std::function<void()> handler;
    SourceLocation place;
  };

  class StepClock;

  void FireTimers(StepClock* steps);

  const Clock::duration slow_step_;
  channel::UniqueFd epoll_;
  bool stopped_ = false;
  Clock::time_point awake_until_{};
  // Ids are never reused, so an event that was fetched before its watch ended finds nothing.
  uint64_t last_id_ = 0;
  std::map<uint64_t, std::shared_ptr<Watched>> watched_;
  std::multimap<Clock::time_point, Pending> timers_;
};

}  // namespace gpuloom::scheduler
