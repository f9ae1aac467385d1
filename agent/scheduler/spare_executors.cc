// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/spare_executors.h"

#include <algorithm>
#include <utility>

#include "agent/scheduler/domain_book.h"
#include "agent/scheduler/log.h"

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

size_t SpareExecutors::count() const {
  return static_cast<size_t>(std::count_if(registry_.executors.begin(), registry_.executors.end(),
                                           [](auto& entry) { return CanBeTaken(*entry.second); }));
}

Executor* SpareExecutors::Take(const std::string& domain, EventLoop::Clock::time_point now) {
  DomainHistory& history = book_->Of(domain);
  if (now < history.next_spare) return nullptr;
  Executor* best = nullptr;
  for (auto& [id, executor] : registry_.executors) {
    if (!CanBeTaken(*executor)) continue;
    if (best == nullptr || executor->state > best->state) best = executor.get();
  }
  if (best == nullptr) return nullptr;
  const std::string was = best->Label();
  best->domain = domain;
  if (history.counts.started != 0) history.next_spare = now + kNextForDomain;
  LogFor(&history.lines, LogLevel::kInfo, was + " is now the " + best->Name());
  if (best->state == Executor::State::kReady) history.failures = 0;
  Schedule();
  return best;
}

void SpareExecutors::Schedule() {
  if (count() >= options_.spare_executors || port_->Unused()) return;
  const auto now = EventLoop::Clock::now();
  const DomainHistory* const history = book_->Find(std::string());
  const auto next = history == nullptr ? next_ : std::max(next_, history->next_start);
  timer_ = loop_->After(std::max<EventLoop::Clock::duration>(next - now, kAfterOthers),
                        [this] { StartOne(); });
}

void SpareExecutors::StartOne() {
  if (count() >= options_.spare_executors || port_->Unused()) return;
  // A domain waits for it. When it is ready, spare ones are looked at again.
  if (std::any_of(registry_.executors.begin(), registry_.executors.end(),
                  [](auto& entry) { return entry.second->state == Executor::State::kStarting; })) {
    return;
  }
  if (!start_()) {
    next_ = EventLoop::Clock::now() + kAfterShortage;
    Schedule();
  }
}

void SpareExecutors::Without(std::function<void()> then) {
  next_ = EventLoop::Clock::now() + kAfterShortage;
  without_.push_back(std::move(then));
  for (auto& [id, executor] : registry_.executors) {
    if (!executor->is_spare()) continue;
    port_->LoseExecutor(executor.get(), End::kKill, "tenants need its memory");
  }
  NoteEnded();
}

void SpareExecutors::NoteEnded() {
  Schedule();
  if (std::any_of(registry_.executors.begin(), registry_.executors.end(),
                  [](auto& entry) { return entry.second->is_spare(); })) {
    return;
  }
  for (const auto& then : std::exchange(without_, {})) then();
}

}  // namespace gpuloom::scheduler
