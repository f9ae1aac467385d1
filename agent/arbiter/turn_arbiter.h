// SPDX-License-Identifier: Apache-2.0
// Which executor has the device, and for how long, between trust domains. Contexts of different processes never run
// side by side: the device time-slices them whole. So one executor at a time has a *turn*, and the scheduler says
// which. Owned by the scheduler's loop; no clock, no I/O: events in, orders out. One thread. Times are nanoseconds;
// `now_ns` is any clock that never goes back. A wrong id is our bug.
//
// It uses the same share tree as a domain does inside: priority class → namespace → allocation, across domains. The
// turn goes to the domain of the allocation that is next, so a namespace of many domains (trustDomain: pod) and a
// domain of many namespaces both get what their weights say.
//
//              Grant                Yield                  Drained
//      idle ----------> granted ------------> yielding ----------------> idle
//                         | ^                     | nothing for overrun_ns
//                   Grant '-' (bounds change)     v                Drained
//                                            overrunning ------------------> loses its next turn, then idle
//                                                 |- Report after report_ns, once
//                                                 '- End after overrun_end_ns of others' time, once
//
// A domain that yields and wants nothing has, by its own account, nothing at the device. So the next one gets its turn
// at once, without waiting for the answer. Until the answer comes the yielding domain is charged all the same, and it
// overruns like any other.
//
// How to drive it: pass every event, then ask until there are no more orders; ask again at wake_at_ns().
//
//   arbiter.SetWants(allocation, true, now);             // it has work; false: nothing queued, nothing at the device
//   arbiter.Divide(domain, division_untrusted, now);     // what the executor says of who ran: at least once a second
//   arbiter.Drained(domain, now);                        // it has stopped; it said who ran before
//   while (auto order = arbiter.Next(now)) send it to order->domain's executor, which does
//     kGrant:  domain.SetTurn(order->lowest, order->in_flight_ns)       (domain_arbiter.h)
//     kYield:  domain.EndTurn(), and Drained when domain.drained()
//     kReport: nothing is sent; it is logged
//     kEnd:    the executor is ended, and then ExecutorEnded
//
// A domain that alone wants the device has a turn without end and without bounds; while that lasts, no messages are
// sent.
//
// Nothing that an executor says is believed if it could gain time by it. Its turn is charged by `now_ns`, from Grant
// until Drained (BusyMeter: when several are at the device at once, each moment is divided). What it says about its
// sessions only divides that charge among its own allocations; names of others' allocations are ignored.
//
// A domain that does not drain is not waited for. After overrun_ns the next one gets its turn beside it; it is charged
// meanwhile, loses the turn that it would get next, and is reported after report_ns. A domain that is only ever slow
// falls behind by its own time. One that stays at the device beside others until it has had overrun_end_ns of their
// time is ended; until then it looks like a long kernel (docs/design/sharing-time.md).
//
// After an overrun of report_ns or more, a domain gets no turn until the others have had what is theirs for what it
// took: by weight, but at most kPauseShare - 1 times as much. The wait also ends when nobody else has wanted the device
// for quiet_ns. The tree alone would forget such debts: those above max_debt_ns, and all of them whenever the others
// pause. A turn that was given to rescue a starved class counts against the next rescue with all of its overrun.
//
// Cost: O(log of the allocations that want the device) for an event or a decision; settling a turn walks over the
// allocations that its executor named. All sums are exact: charged_ns of all domains is the time in which somebody had
// a turn and wanted it, and unattributed_ns() is the part that belonged to allocations that were gone.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "agent/arbiter/busy_meter.h"
#include "agent/arbiter/policy_tree.h"
#include "agent/arbiter/starvation_guard.h"

namespace gpuloom::arbiter {

enum class DomainId : uint32_t {};

struct TurnLimits {
  ShareTree::Limits shares;
  // Handing over leaves the device idle for as long as a message, the drain and a switch of contexts take. A twentieth
  // of a millisecond for that is 1 % of this.
  uint64_t quantum_ns = 5'000'000;
  // What is in flight when a turn ends runs into the next turn.
  uint64_t in_flight_ns = 1'000'000;
  // The same for a class below one that has work, or had some within higher_linger_ns.
  uint64_t lower_in_flight_ns = 200'000;
  uint64_t higher_linger_ns = 100'000'000;
  uint64_t starvation_ns = 100'000'000;  // where a policy sets none; 0: lower classes may starve
  // Two quanta: a domain that is still at the device does not run out, it runs on.
  uint64_t overrun_ns = 10'000'000;
  uint64_t report_ns = 1'000'000'000;
  // As long as the share tree remembers the debts of idle nodes.
  uint64_t quiet_ns = 10'000'000'000;
  // Of the device's time beside others, as it is charged. For a domain for which SetOverrunEnd has set nothing else.
  uint64_t overrun_end_ns = 300'000'000'000;
};

struct TurnOrder {
  enum class Kind : uint8_t { kGrant, kYield, kReport, kEnd };
  Kind kind;
  DomainId domain;
  Priority lowest;        // kGrant: no class below it may submit
  uint64_t in_flight_ns;  // kGrant: kUnbounded for a lone domain
};

// One entry of an executor's account of a turn.
struct Ran {
  AllocationId allocation_untrusted;
  uint64_t used_ns_untrusted;
};

class TurnArbiter {
 public:
  explicit TurnArbiter(const TurnLimits& limits = {});

  NamespaceId AddNamespace(const NamespacePolicy& policy, uint64_t now_ns);
  void SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns);
  void RemoveNamespace(NamespaceId id, uint64_t now_ns);  // when it has no allocations
  // Whether it would be rid of something if it were removed now and added again.
  bool Owes(NamespaceId id, uint64_t now_ns) const { return policy_.Owes(id, now_ns); }
  DomainId AddDomain();
  void RemoveDomain(DomainId id, uint64_t now_ns);  // when it has no allocations
  // Sets a domain's own limit: how long its kernels may run depends on policy.
  void SetOverrunEnd(DomainId id, uint64_t overrun_end_ns) {
    At(id).overrun_end_ns = overrun_end_ns;
  }
  // The domain's executor has ended: its turn is over, nothing of it is at the device, and its allocations want
  // nothing.
  void ExecutorEnded(DomainId id, uint64_t now_ns);
  AllocationId AddAllocation(NamespaceId space, DomainId domain, const AllocationPolicy& policy,
                             uint64_t now_ns);
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);
  void RemoveAllocation(AllocationId id, uint64_t now_ns);

  void SetWants(AllocationId id, bool wants, uint64_t now_ns);
  // Replaces the division that was given before; from this call on, charges are divided in these proportions. At most
  // kMaxNamed entries are used.
  void Divide(DomainId id, std::span<const Ran> division_untrusted, uint64_t now_ns);
  void Drained(DomainId id, uint64_t now_ns);

  std::optional<TurnOrder> Next(uint64_t now_ns);
  uint64_t wake_at_ns(uint64_t now_ns) const;

  uint64_t charged_ns(AllocationId id) const { return At(id).charged_ns; }
  uint64_t charged_ns(DomainId id) const { return meter_.charged_ns(static_cast<uint32_t>(id)); }
  uint64_t unattributed_ns() const { return unattributed_ns_; }
  uint64_t overruns(DomainId id) const { return At(id).overruns; }
  // How much of the device's time the domain has had beside others since its present overrun began.
  uint64_t overran_ns(DomainId id) const { return At(id).overran_ns; }
  // How much of the device's time the others are to have before the domain, which overran, gets a turn again; 0: it
  // does not wait.
  uint64_t owes_ns(DomainId id) const { return OwesNs(static_cast<uint32_t>(id)); }
  uint64_t steps() const { return policy_.tree().steps(); }

  // Several times as many sessions as a domain can have.
  static constexpr size_t kMaxNamed = 4096;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kIdle, kGranted, kYielding, kOverrunning };

  // With 0 of them, the shares of namespaces that have several domains were wrong by up to 0.04 (random_workloads_test.cc).
  static constexpr uint32_t kUnusedTurns = 8;

  struct Allocation {
    bool used = false;
    DomainId domain{};
    Priority priority = Priority::kNormal;
    ShareTree::Node leaf = ShareTree::kNone;
    bool wants = false;
    uint64_t charged_ns = 0;
    uint64_t seen_charged_ns = 0;  // that, when the last turn that was given for it was over
    uint32_t unused_turns = 0;     // of those, the last ones in which it was charged nothing
  };
  struct Domain {
    bool used = false;
    State state = State::kIdle;
    uint32_t wanting = 0;  // allocations that want the device
    bool metered = false;
    bool out = false;      // gets no turn until somebody else has had one
    bool rescued = false;  // it had its last turn because its class had starved
    bool reported = false;
    bool ended = false;  // kEnd was given
    uint64_t yields_since_ns = 0;
    uint64_t overran_ns = 0;
    uint64_t noted_ns = 0;  // how much of its charge in the meter was added up last
    // In terms of what the others have been charged: when they will have had what is theirs for the present overrun,
    // and for the last long one.
    uint64_t evens_at_ns = 0;
    uint64_t even_at_ns = 0;
    uint64_t overrun_end_ns = 0;
    uint64_t overruns = 0;
    uint64_t paid_ns = 0;   // how much of its charge in the meter has been divided
    uint64_t alone_ns = 0;  // of what has not: when no other domain wanted a turn
    // What was divided since the executor's last report: of times when no other domain wanted a turn, and of others.
    uint64_t unreported_alone_ns = 0;
    uint64_t unreported_ns = 0;
    uint32_t winner = UINT32_MAX;           // the allocation because of which it had its last turn
    Priority priority = Priority::kNormal;  // the winner's
    std::vector<Ran> division;
    std::vector<uint32_t> allocations;
  };
  struct Turn {
    uint32_t domain = kNone;
    uint32_t allocation = kNone;  // because of which the turn was given; kNone when it has gone
    Priority priority = Priority::kNormal;
    uint64_t ends_ns = 0;
    uint64_t in_flight_ns = 0;  // the last Grant's
    Priority lowest = Priority::kLow;
  };

  Allocation& At(AllocationId id) { return allocations_[static_cast<size_t>(id)]; }
  const Allocation& At(AllocationId id) const { return allocations_[static_cast<size_t>(id)]; }
  Domain& At(DomainId id) { return domains_[static_cast<size_t>(id)]; }
  const Domain& At(DomainId id) const { return domains_[static_cast<size_t>(id)]; }
  void Show(const Allocation& allocation, uint64_t now_ns);
  void ShowAll(const Domain& domain, uint64_t now_ns);
  void Meter(uint32_t domain, uint64_t now_ns);
  void NoteOverruns(uint64_t now_ns);
  uint64_t OthersNs(uint32_t domain) const;
  uint64_t OwesNs(uint32_t domain) const;
  double OthersTimes(const Domain& domain) const;
  uint64_t QuietSinceNs() const;
  void Settle(uint32_t domain, uint64_t now_ns);
  void Pay(uint32_t allocation, uint64_t ns, uint64_t owed_ns, uint64_t now_ns);
  void CountAlone(uint64_t now_ns);
  void PayAlone(uint32_t domain, uint64_t now_ns);
  void NoteClasses(uint64_t now_ns);
  bool HigherLingers(uint64_t now_ns) const;
  uint32_t Choose(uint64_t now_ns);
  void BeginTurn(uint32_t allocation, uint64_t now_ns);
  void EndTurn(uint64_t now_ns);
  void ChargeUnused(uint64_t now_ns);
  void BeginOverrun(uint32_t domain, uint64_t now_ns);
  bool IsLate(const Domain& domain, uint64_t now_ns) const;
  void Readmit(uint64_t now_ns);
  bool Alone(uint32_t domain) const;
  std::optional<TurnOrder> Grant(uint64_t now_ns);
  std::optional<TurnOrder> Watch(uint64_t now_ns);
  bool MustYield(uint64_t now_ns);

  const TurnLimits limits_;
  PolicyTree policy_;
  StarvationGuard guard_;
  BusyMeter meter_;
  std::vector<Allocation> allocations_;
  std::vector<uint32_t> allocation_of_leaf_;
  std::vector<Domain> domains_;
  std::vector<uint32_t> free_domains_;
  std::vector<uint32_t> leaving_;  // asked to yield, and without the turn
  std::vector<uint32_t> overrunning_;
  std::vector<uint32_t> out_;
  Turn turn_;
  uint32_t counted_ = kNone;  // the domain that had the turn when CountAlone was called last
  uint64_t counted_ns_ = 0;   // what it had been charged then
  uint32_t wanting_domains_ = 0;
  std::array<uint32_t, kPriorities> wanting_ = {};  // allocations that want the device
  std::array<bool, kPriorities> was_active_ = {};
  std::array<bool, kPriorities> ever_active_ = {};
  std::array<uint64_t, kPriorities> active_until_ns_ = {};
  std::array<uint32_t, kPriorities> left_by_ =
      {};  // the domain that wanted something of the class last
  uint64_t unattributed_ns_ = 0;
};

}  // namespace gpuloom::arbiter
