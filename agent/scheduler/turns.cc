// SPDX-License-Identifier: Apache-2.0
#include "agent/scheduler/turns.h"

#include <algorithm>
#include <utility>

#include "agent/arbiter/terms.h"
#include "agent/scheduler/allocation.h"
#include "agent/scheduler/executor.h"
#include "agent/scheduler/log.h"
#include "agent/scheduler/registry.h"

namespace gpuloom::scheduler {
namespace {

// Decisions are made after every event; without events, at this interval.
constexpr uint64_t kLeastWaitNs = 500'000;
// The bounds of a turn in progress change no more often than this.
constexpr uint64_t kChangeEveryNs = 500'000;

// The loop's clock in nanoseconds, as the arbiter wants its times.
uint64_t Now() {
  return static_cast<uint64_t>(
      std::chrono::nanoseconds(EventLoop::Clock::now().time_since_epoch()).count());
}

// The wire's numbers begin at 1, since 0 stands for "not said" (terms.h).
uint32_t Said(arbiter::Priority priority) { return static_cast<uint32_t>(priority) + 1; }
static_assert(arbiter::PriorityOf(1) == arbiter::Priority::kHigh &&
              static_cast<uint32_t>(arbiter::Priority::kHigh) == 0);

}  // namespace

Turns::Domain& Turns::DomainOf(const std::string& name) {
  const auto [it, is_new] = domains_.try_emplace(name);
  if (is_new) it->second.id = arbiter_.AddDomain();
  return it->second;
}

Turns::Domain* Turns::Find(const Executor& executor) {
  const auto it = domains_.find(executor.domain);
  return it == domains_.end() || it->second.executor != &executor ? nullptr : &it->second;
}

const Turns::Entry* Turns::Find(const std::string& domain, uint64_t allocation_id_untrusted) const {
  const auto it = entries_.find({allocation_id_untrusted, domain});
  return it == entries_.end() ? nullptr : &it->second;
}

Turns::Entries::iterator Turns::FirstOf(const Allocation& allocation) {
  const auto it = entries_.lower_bound({allocation.id, std::string()});
  return it == entries_.end() || it->first.first != allocation.id ? entries_.end() : it;
}

// A domain with nothing left is forgotten unless it owes time: coming back under its name must not
// clear that.
void Turns::ForgetDomains() {
  std::erase_if(domains_, [this](const auto& entry) {
    const Domain& domain = entry.second;
    if (domain.allocations != 0 || domain.executor != nullptr || arbiter_.owes_ns(domain.id) != 0)
      return false;
    arbiter_.RemoveDomain(domain.id, Now());
    return true;
  });
}

void Turns::ForgetNamespaces() {
  const uint64_t now = Now();
  size_t kept = 0;
  std::erase_if(namespaces_, [&](const auto& entry) {
    const Namespace& it = entry.second;
    if (it.allocations != 0) return false;
    if (kept < Registry::kMaxAllocations && arbiter_.Owes(it.id, now)) {
      ++kept;
      return false;
    }
    arbiter_.RemoveNamespace(it.id, now);
    return true;
  });
}

void Turns::Add(const Allocation& allocation, const Key& key) {
  const uint64_t now = Now();
  Entry& entry = entries_[key];
  entry.space = *allocation.namespace_id;
  const auto [space, is_new] = namespaces_.try_emplace(entry.space);
  if (is_new) {
    space->second.id = arbiter_.AddNamespace(arbiter::OfNamespace(allocation.shares), now);
  }
  ++space->second.allocations;
  Domain& domain = DomainOf(key.second);
  ++domain.allocations;
  entry.id = arbiter_.AddAllocation(
      space->second.id, domain.id,
      arbiter::OfAllocation(allocation.shares, allocation.slots, allocation.rescue_after_ms), now);
}

// Also for places in former domains: their processes still run under these terms.
void Turns::Set(const Allocation& allocation) {
  const Key key(allocation.id, allocation.trust_domain);
  if (!entries_.contains(key)) Add(allocation, key);
  const uint64_t now = Now();
  for (auto it = FirstOf(allocation); it != entries_.end() && it->first.first == allocation.id;
       ++it) {
    arbiter_.SetNamespace(namespaces_.at(it->second.space).id,
                          arbiter::OfNamespace(allocation.shares), now);
    arbiter_.SetAllocation(
        it->second.id,
        arbiter::OfAllocation(allocation.shares, allocation.slots, allocation.rescue_after_ms),
        now);
    it->second.end_after_ms = allocation.kernels.end_after_ms;
    SetOverrunEnd(it->first.second);
  }
  Decide();
}

// The longest limit of all places in the domain, because nobody can tell from here whose kernel it
// was; twice that, for the reason in the header.
void Turns::SetOverrunEnd(const std::string& domain) {
  uint64_t longest_ms = 0;
  for (const auto& [key, entry] : entries_) {
    if (key.second == domain) longest_ms = std::max<uint64_t>(longest_ms, entry.end_after_ms);
  }
  arbiter_.SetOverrunEnd(domains_.at(domain).id,
                         std::max(overrun_end_ns_, 2 * longest_ms * 1'000'000));
}

void Turns::RemoveEntry(Entries::iterator it) {
  const std::string name = it->first.second;
  const Entry entry = it->second;
  entries_.erase(it);
  const uint64_t now = Now();
  Domain& domain = domains_.at(name);
  // Another may get the number.
  std::erase_if(domain.usage,
                [&](const arbiter::Ran& ran) { return ran.allocation_untrusted == entry.id; });
  arbiter_.RemoveAllocation(entry.id, now);
  --namespaces_.at(entry.space).allocations;
  SetOverrunEnd(name);
  --domain.allocations;
}

void Turns::Remove(const Allocation& allocation) {
  for (auto it = FirstOf(allocation); it != entries_.end(); it = FirstOf(allocation)) {
    RemoveEntry(it);
  }
  Decide();
}

// A single executor needs no turns. When a second one starts, both are told that their unlimited
// turns have ended; from then on turns are given by what each wants.
void Turns::Begin(Executor* executor) {
  Domain& its = DomainOf(executor->domain);
  its.executor = executor;
  its.turn = Turn::kUnsaid;
  const uint64_t now = Now();
  time_.Add(executor->id, now);
  time_.SetTurn(executor->id, true, now);
  if (++executors_ < 2) return;
  for (auto& [name, domain] : domains_) {
    if (domain.executor != nullptr && domain.turn == Turn::kUnsaid) EndTurn(&domain);
  }
}

// The domain's place in the arbiter stays: a new executor finds what the old one used.
void Turns::End(const Executor& executor) {
  Domain* domain = Find(executor);
  if (domain == nullptr) return;
  domain->executor = nullptr;
  domain->change.reset();
  domain->usage.clear();
  --executors_;
  time_.SetTurn(executor.id, false, Now());
  arbiter_.ExecutorEnded(domain->id, Now());
  Decide();
}

void Turns::SetWants(const Executor& executor, uint64_t allocation_id_untrusted, bool wants) {
  const Domain* domain = Find(executor);
  const Entry* place = Find(executor.domain, allocation_id_untrusted);
  // While an executor is alone, no turn has been requested.
  if (domain == nullptr || domain->turn == Turn::kUnsaid || place == nullptr) return;
  arbiter_.SetWants(place->id, wants, Now());
  Decide();
}

// Several messages make one account; it is divided when the last has come.
void Turns::AddUsage(const Executor& executor, const control::TurnUsage& usage) {
  Domain* domain = Find(executor);
  if (domain == nullptr) return;
  for (uint32_t i = 0; i < usage.count && domain->usage.size() < arbiter::TurnArbiter::kMaxNamed;
       ++i) {
    const Entry* place = Find(executor.domain, usage.uses[i].allocation_id);
    if (place != nullptr) domain->usage.push_back({place->id, usage.uses[i].used_ns});
  }
  if (usage.more != 0) return;
  arbiter_.Divide(domain->id, domain->usage, Now());
  domain->usage.clear();
}

void Turns::Drained(const Executor& executor, uint32_t request_untrusted) {
  Domain* domain = Find(executor);
  // Otherwise it answers about a turn that has ended before.
  if (domain == nullptr || domain->turn != Turn::kEnded || request_untrusted != domain->end_request)
    return;
  // The scheduler's clock counts its turn until here.
  time_.SetTurn(executor.id, false, Now());
  arbiter_.Drained(domain->id, Now());
  Decide();
}

uint64_t Turns::overruns(const std::string& domain) const {
  const auto it = domains_.find(domain);
  return it == domains_.end() ? 0 : arbiter_.overruns(it->second.id);
}

uint64_t Turns::overrun_wait_ns(const std::string& domain) const {
  const auto it = domains_.find(domain);
  return it == domains_.end() ? 0 : arbiter_.owes_ns(it->second.id);
}

uint64_t Turns::PartNs(const Executor& executor) { return time_.PartNs(executor.id, Now()); }

uint64_t Turns::Charge(const Executor& executor, size_t engine, uint64_t wanted_ns) {
  return time_.Charge(executor.id, engine, wanted_ns, Now());
}

void Turns::Forget(const Executor& executor) { time_.Remove(executor.id, Now()); }

// A change of bounds within a turn is held back and sent when its time has come (Decide). The
// beginning of a turn is never held back.
void Turns::Give(Domain* domain, const control::GiveTurn& turn) {
  const uint64_t now = Now();
  if (domain->turn == Turn::kGiven && now - domain->given_ns < kChangeEveryNs) {
    domain->change = turn;
    return;
  }
  domain->turn = Turn::kGiven;
  time_.SetTurn(domain->executor->id, true, now);
  domain->given_ns = now;
  domain->change.reset();
  domain->executor->peer->Send(0, turn);
}

void Turns::EndTurn(Domain* domain) {
  domain->turn = Turn::kEnded;
  domain->change.reset();
  domain->end_request = ++last_request_;
  domain->executor->peer->Send(domain->end_request, control::EndTurn{});
}

// Orders name domains by the arbiter's number; there are few, so they are searched.
void Turns::Carry(const arbiter::TurnOrder& order) {
  using Kind = arbiter::TurnOrder::Kind;
  const auto it = std::find_if(domains_.begin(), domains_.end(),
                               [&](const auto& entry) { return entry.second.id == order.domain; });
  Domain& domain = it->second;
  if (domain.executor == nullptr) return;  // it wants no turn
  switch (order.kind) {
    case Kind::kGrant:
      Give(&domain, control::GiveTurn{Said(order.lowest), 0, order.in_flight_ns});
      break;
    case Kind::kYield:
      EndTurn(&domain);
      break;
    case Kind::kReport:
      LogFor(&domain.lines, LogLevel::kWarning,
             domain.executor->Label() +
                 " still has work at the device a second after the end of its turn; other domains "
                 "run beside it, "
                 "and their work takes longer. A kernel of one of its tenants runs that long, or "
                 "it does not "
                 "do as it is told. When it has drained it waits until they have had their part");
      break;
    case Kind::kEnd:
      on_overrun_(domain.executor, arbiter_.overran_ns(domain.id));
      break;
  }
}

// After every event, and at the arbiter's own moments. Orders that are carried out may cause
// others, so it asks until there is none.
void Turns::Decide() {
  ForgetDomains();
  ForgetNamespaces();
  while (const auto order = arbiter_.Next(Now())) Carry(*order);
  const uint64_t now = Now();
  uint64_t wake_at_ns = arbiter_.wake_at_ns(now);
  for (auto& [name, domain] : domains_) {
    if (domain.change) Give(&domain, control::GiveTurn(*domain.change));
    if (domain.change) wake_at_ns = std::min(wake_at_ns, domain.given_ns + kChangeEveryNs);
  }
  timer_.Cancel();
  if (executors_ == 0 || wake_at_ns == UINT64_MAX) return;
  const uint64_t wait_ns = std::max(wake_at_ns - std::min(wake_at_ns, now), kLeastWaitNs);
  timer_ = loop_->After(std::chrono::nanoseconds(wait_ns), [this] { Decide(); });
}

}  // namespace gpuloom::scheduler
