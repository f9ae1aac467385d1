// SPDX-License-Identifier: Apache-2.0
// Spare executors: started before a domain needs them, with a context and without a domain, so that
// a new domain, or one whose executor has died, does not wait for a context. An executor is
// confined before it serves a session and knows nothing about its domain, so a spare one is like
// any other; once taken, it never serves another domain.
//
// Its memory is part of the reserve; tenants whose quota needs it get it.
#include <algorithm>
#include <utility>

#include "agent/scheduler/log.h"
#include "agent/scheduler/scheduler.h"

namespace gpuloom::scheduler {
namespace {

// The time between two spare executors that one domain gets for an executor that died: a domain
// whose tenants make executors die again and again leaves the spare ones to others.
constexpr std::chrono::seconds kNextForDomain{10};

// Programs that start together are served first: contexts made at the same time slow each other.
constexpr std::chrono::milliseconds kAfterOthers{100};

// The device was full, and what fills it stays for a while.
constexpr std::chrono::seconds kAfterShortage{60};

bool CanBeTaken(const Executor& executor) {
  return executor.is_spare() && executor.state != Executor::State::kDying;
}

}  // namespace

size_t Scheduler::Spares() const {
  return static_cast<size_t>(std::count_if(executors_.begin(), executors_.end(),
                                           [](auto& entry) { return CanBeTaken(*entry.second); }));
}

Executor* Scheduler::TakeSpare(const std::string& domain, EventLoop::Clock::time_point now) {
  DomainHistory& history = book_.Of(domain);
  if (now < history.next_spare) return nullptr;
  Executor* best = nullptr;
  for (auto& [id, executor] : executors_) {
    if (!CanBeTaken(*executor)) continue;
    if (best == nullptr || executor->state > best->state) best = executor.get();
  }
  if (best == nullptr) return nullptr;
  const std::string was = best->Label();
  best->domain = domain;
  if (history.counts.started != 0) history.next_spare = now + kNextForDomain;
  LogFor(&history.lines, LogLevel::kInfo, was + " is now the " + best->Name());
  if (best->state == Executor::State::kReady) {
    history.failures = 0;
    BeginServing(best);
  }
  LookAtSpares();
  return best;
}

void Scheduler::LookAtSpares() {
  if (Spares() >= options_.spare_executors || Unused()) return;
  const auto now = EventLoop::Clock::now();
  const DomainHistory* const history = book_.Find(std::string());
  const auto next = history == nullptr ? next_spare_executor_
                                       : std::max(next_spare_executor_, history->next_start);
  spare_executor_timer_ = loop_->After(
      std::max<EventLoop::Clock::duration>(next - now, kAfterOthers), [this] { StartSpare(); });
}

void Scheduler::StartSpare() {
  if (Spares() >= options_.spare_executors || Unused()) return;
  // A domain waits for it. When it is ready, spare ones are looked at again.
  if (std::any_of(executors_.begin(), executors_.end(),
                  [](auto& entry) { return entry.second->state == Executor::State::kStarting; })) {
    return;
  }
  std::string error;  // has been logged
  if (StartExecutor(std::string(), &error) == nullptr) {
    next_spare_executor_ = EventLoop::Clock::now() + kAfterShortage;
    LookAtSpares();
  }
}

void Scheduler::WithoutSpares(std::function<void()> then) {
  next_spare_executor_ = EventLoop::Clock::now() + kAfterShortage;
  without_spares_.push_back(std::move(then));
  for (auto& [id, executor] : executors_) {
    if (!executor->is_spare()) continue;
    LoseExecutor(executor.get(), End::kKill, "tenants need its memory");
  }
  NoteSpareEnded();
}

void Scheduler::NoteSpareEnded() {
  LookAtSpares();
  if (std::any_of(executors_.begin(), executors_.end(),
                  [](auto& entry) { return entry.second->is_spare(); })) {
    return;
  }
  for (const auto& then : std::exchange(without_spares_, {})) then();
}

}  // namespace gpuloom::scheduler
