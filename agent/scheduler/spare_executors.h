// SPDX-License-Identifier: Apache-2.0
// Spare executors: started before a domain needs them, with a context and without a domain, so that
// a new domain, or one whose executor has died, does not wait for a context. An executor is
// confined before it serves a session and knows nothing about its domain, so a spare one is like
// any other; once taken, it never serves another domain.
//
// Its memory is part of the reserve; tenants whose quota needs it get it.
//
// A part of the scheduler; its thread only. The executors themselves are the registry's. `book` outlives it.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "agent/scheduler/event_loop.h"
#include "agent/scheduler/scheduler_port.h"

namespace gpuloom::scheduler {

class DomainBook;

class SpareExecutors : public Part {
 public:
  // Starts an executor without a domain. Returns false, and logs why, if there is none.
  using Start = std::function<bool()>;

  SpareExecutors(SchedulerPort* port, DomainBook* book, Start start)
      : Part(port), book_(book), start_(std::move(start)) {}

  // How many can be taken.
  size_t count() const;
  // Gives a spare executor, if there is one, to the domain. Ready or not; it does not serve yet.
  [[nodiscard]] Executor* Take(const std::string& domain, EventLoop::Clock::time_point now);
  // Call when a spare executor has been taken, and when another executor is ready.
  void Schedule();
  // Ends the spare executors and calls `then` when the device has their memory back. None is started for a while.
  void Without(std::function<void()> then);
  // Call when an executor has ended.
  void NoteEnded();

 private:
  void StartOne();

  DomainBook* const book_;
  const Start start_;
  Timer timer_;  // when the next one may be started
  EventLoop::Clock::time_point next_{};
  std::vector<std::function<void()>> without_;  // wait for the end of all spare executors
};

}  // namespace gpuloom::scheduler
