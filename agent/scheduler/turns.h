// SPDX-License-Identifier: Apache-2.0
// Whose turn at the device it is, among this GPU's executors: drives the deciding core (agent/arbiter/turn_arbiter.h)
// with what executors report, and sends them what it decides. docs/design/sharing-time.md.
//
// Nothing is sent while there is one executor: it has an endless turn. From a second one on, each has a turn only if it
// was given one. A trust domain keeps its place among the others for as long as it has allocations, also when its
// executor is replaced: a domain gains nothing by ending its executor. What it owes for an overrun it still owes when
// it has lost its allocations, and when it has new ones; so does a namespace what it has had above its ceiling and its
// share.
//
// What executors report is untrusted: it can only divide their own domain's time (turn_arbiter.h).
//
// Owned by Scheduler; its loop's thread only. It holds pointers to executors between Begin and End.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/arbiter/turn_arbiter.h"
#include "agent/node/line_budget.h"
#include "agent/scheduler/device_time.h"
#include "agent/scheduler/event_loop.h"
#include "proto/control/messages.h"

namespace gpuloom::scheduler {

struct Allocation;
class Executor;

class Turns {
 public:
  // Called when the executor has been at the device without a turn for too long, with how much of the device's time it
  // has had beside others. The executor is to be ended, but not inside this call.
  using OnOverrun = std::function<void(Executor*, uint64_t overran_ns)>;

  // `loop` outlives it. No executor is ended before it has had `overrun_end_ns` of the device's time in that way, nor
  // before twice as long as the policy allows a kernel of its tenants to run: once for a kernel that was running, once
  // for the one behind it.
  Turns(EventLoop* loop, uint64_t overrun_end_ns, OnOverrun on_overrun)
      : loop_(loop), overrun_end_ns_(overrun_end_ns), on_overrun_(std::move(on_overrun)) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // Call when the allocation is bound, or its terms have changed.
  void Set(const Allocation& allocation);
  void Remove(const Allocation& allocation);
  // The executor is ready, so that it may have a turn. A domain has one executor at a time here.
  void Begin(Executor* executor);
  // The executor does not serve any more: if it had a turn, the next one gets it. Does nothing if the executor never
  // began.
  void End(const Executor& executor);

  // What an executor reports. Allocations that belong to other domains or are gone are ignored.
  void SetWants(const Executor& executor, uint64_t allocation_id_untrusted, bool wants);
  void AddUsage(const Executor& executor, const control::TurnUsage& usage);
  void Drained(const Executor& executor, uint32_t request_untrusted);

  // DeviceTime::PartNs. From Begin on.
  uint64_t PartNs(const Executor& executor);
  // DeviceTime::Charge. From Begin on, and until Forget also of an executor that has ended.
  uint64_t Charge(const Executor& executor, size_t engine, uint64_t wanted_ns);
  void Forget(const Executor& executor);

  // How often the domain has overrun its turn for so long that others were given theirs meanwhile.
  uint64_t overruns(const std::string& domain) const;
  // How much of the device's time the others are to have before it gets a turn again because of that; 0: it does not
  // wait.
  uint64_t overrun_wait_ns(const std::string& domain) const;

  static bool IsValid(const control::TurnUsage& usage_untrusted) {
    return usage_untrusted.count <= control::kUsesAtOnce && usage_untrusted.more <= 1;
  }

 private:
  // The domain's turn, as its executor knows it.
  enum class Turn { kUnsaid, kGiven, kEnded };
  struct Domain {
    arbiter::DomainId id;
    Executor* executor = nullptr;  // nullptr: none that may have a turn
    Turn turn = Turn::kUnsaid;
    uint32_t end_request = 0;  // of the latest EndTurn
    uint64_t given_ns = 0;     // when the latest GiveTurn was sent
    // A change of bounds that is sent later, so that other executors, which may change their wishes at
    // will, cannot cause many messages.
    std::optional<control::GiveTurn> change;
    uint32_t allocations = 0;
    std::vector<arbiter::Ran> usage;  // the account received so far, while more messages follow
    LineBudget lines;                 // its executors' overruns
  };
  struct Namespace {
    arbiter::NamespaceId id;
    uint32_t allocations = 0;
  };
  struct Entry {
    arbiter::AllocationId id;
    uint64_t space = 0;
    uint32_t end_after_ms = 0;  // how long a kernel may run, as in control::KernelTerms
  };
  // By allocation and domain: an allocation may be in several, because a new trust domain only applies to processes
  // that start after the change.
  using Key = std::pair<uint64_t, std::string>;
  using Entries = std::map<Key, Entry>;

  Domain& DomainOf(const std::string& name);
  // The domain of a live executor; nullptr if the executor never began or has ended.
  Domain* Find(const Executor& executor);
  const Entry* Find(const std::string& domain, uint64_t allocation_id_untrusted) const;
  Entries::iterator FirstOf(const Allocation& allocation);
  void Add(const Allocation& allocation, const Key& key);
  void RemoveEntry(Entries::iterator it);
  void SetOverrunEnd(const std::string& domain);
  void ForgetDomains();     // those that have nothing left
  void ForgetNamespaces();  // the same
  void Give(Domain* domain, const control::GiveTurn& turn);
  void EndTurn(Domain* domain);
  // Sends what the arbiter decides, and sets the timer.
  void Decide();
  void Carry(const arbiter::TurnOrder& order);

  EventLoop* loop_;
  const uint64_t overrun_end_ns_;
  const OnOverrun on_overrun_;
  DeviceTime time_;
  arbiter::TurnArbiter arbiter_;
  std::map<std::string, Domain> domains_;
  std::map<uint64_t, Namespace> namespaces_;
  Entries entries_;
  uint32_t executors_ = 0;
  uint32_t last_request_ = 0;
  Timer timer_;
};

}  // namespace gpuloom::scheduler
