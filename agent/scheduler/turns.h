// SPDX-License-Identifier: Apache-2.0
// Whose turn at the device it is, among this GPU's executors: drives the deciding core
// (agent/arbiter/turn_arbiter.h) with what executors say, and sends them what it decides.
// docs/design/sharing-time.md.
//
// Nothing is said while there is one executor: it has an endless turn. From a second one on, each
// has a turn only if it was given one. A trust domain keeps its place among the others for as long
// as it has allocations, also when its executor is replaced: a domain gains nothing by having it
// end. What it owes for an overrun it owes without allocations, too, and with new ones.
//
// What executors say is untrusted: it can only divide their own domain's time (turn_arbiter.h).
//
// Owned by Scheduler; its loop's thread only. It knows executors between Begin and End.
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
  // Called when the executor has been at the device without a turn for too long: it is to end, but not in this call. With the time
  // of the device that it has had beside others.
  using OnOverrun = std::function<void(Executor*, uint64_t overran_ns)>;

  // `loop` outlives it. No executor is ended before it has had `overrun_end_ns` so, nor before twice as long as the policy lets a
  // kernel of its tenants run: for one that was running, and one that came behind it.
  Turns(EventLoop* loop, uint64_t overrun_end_ns, OnOverrun on_overrun)
      : loop_(loop), overrun_end_ns_(overrun_end_ns), on_overrun_(std::move(on_overrun)) {}
  Turns(const Turns&) = delete;
  Turns& operator=(const Turns&) = delete;

  // The allocation is bound, or its terms have changed.
  void Set(const Allocation& allocation);
  void Remove(const Allocation& allocation);
  // The executor is ready: it may have a turn from now on. One for each domain at a time.
  void Begin(Executor* executor);
  // It is no longer served: if it had a turn, the next one has it now. Does nothing if it never
  // began.
  void End(const Executor& executor);

  // What an executor says. Allocations of other domains, and those that are gone, are ignored.
  void SetWants(const Executor& executor, uint64_t allocation_id_untrusted, bool wants);
  void AddUsage(const Executor& executor, const control::TurnUsage& usage);
  void Drained(const Executor& executor, uint32_t request_untrusted);

  // As DeviceTime's. From Begin on.
  uint64_t PartNs(const Executor& executor);
  // As DeviceTime::Charge. From Begin on, and until Forget also of an executor that has ended.
  uint64_t Charge(const Executor& executor, size_t engine, uint64_t wanted_ns);
  void Forget(const Executor& executor);

  // How often the domain has overrun its turn so far that others did not wait for it.
  uint64_t overruns(const std::string& domain) const;

  static bool IsValid(const control::TurnUsage& usage_untrusted) {
    return usage_untrusted.count <= control::kUsesAtOnce && usage_untrusted.more <= 1;
  }

 private:
  // As its executor knows it.
  enum class Turn { kUnsaid, kGiven, kEnded };
  struct Domain {
    arbiter::DomainId id;
    Executor* executor = nullptr;  // nullptr: none that may have a turn
    Turn turn = Turn::kUnsaid;
    uint32_t end_request = 0;  // of the last EndTurn
    uint64_t given_ns = 0;     // the last GiveTurn
    // What is to be sent later: other executors, which change their minds at will, cannot make it
    // many.
    std::optional<control::GiveTurn> change;
    uint32_t allocations = 0;
    std::vector<arbiter::Ran> usage;  // what was said of it, while more is to come
    LineBudget lines;                 // its executors' overruns
  };
  struct Namespace {
    arbiter::NamespaceId id;
    uint32_t allocations = 0;
  };
  struct Place {
    arbiter::AllocationId id;
    uint64_t space = 0;
    uint32_t end_after_ms = 0;  // a kernel, as in control::KernelTerms
  };
  // Of allocation and domain: an allocation may be in several, because a new trust domain holds for
  // processes that start from then on.
  using Key = std::pair<uint64_t, std::string>;
  using Places = std::map<Key, Place>;

  Domain& DomainOf(const std::string& name);
  // Of a live executor; nullptr: it is none, or no longer.
  Domain* Find(const Executor& executor);
  const Place* Find(const std::string& domain, uint64_t allocation_id_untrusted) const;
  Places::iterator FirstOf(const Allocation& allocation);
  void Add(const Allocation& allocation, const Key& key);
  void RemovePlace(Places::iterator it);
  void SetOverrunEnd(const std::string& domain);
  void ForgetDomains();  // that have nothing any more
  void Give(Domain* domain, const control::GiveTurn& turn);
  void EndTurn(Domain* domain);
  // Sends what is decided, and sets the timer.
  void Decide();
  void Carry(const arbiter::TurnOrder& order);

  EventLoop* loop_;
  const uint64_t overrun_end_ns_;
  const OnOverrun on_overrun_;
  DeviceTime time_;
  arbiter::TurnArbiter arbiter_;
  std::map<std::string, Domain> domains_;
  std::map<uint64_t, Namespace> namespaces_;
  Places places_;
  uint32_t executors_ = 0;
  uint32_t last_request_ = 0;
  Timer timer_;
};

}  // namespace gpuloom::scheduler
