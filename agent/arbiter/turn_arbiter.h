// SPDX-License-Identifier: Apache-2.0
// Between trust domains: which executor has the device, and for how long. Contexts of different processes never
// run side by side, the device time-slices them whole; so one executor at a time has a *turn*, and the
// scheduler says which. Owned by the scheduler's loop; no clock, no I/O: events in, orders out. One thread.
//
// By the same share tree as inside a domain: priority class → namespace → allocation, across domains. The turn goes
// to the domain of the allocation that is next, so a namespace of many domains (trustDomain: pod) and a domain
// of many namespaces both get what their weights say.
//
//              Grant                Yield                  Drained
//      idle ----------> granted ------------> yielding ----------------> idle
//                         | ^                     | nothing for overrun_ns
//                   Grant '-' (bounds change)     v                Drained
//                                            overrunning ------------------> loses its next turn, then idle
//                                                 |- Report after report_ns, once
//                                                 '- End after overrun_end_ns of others' time, once
//
// Who yields and wants nothing has nothing at the device, as it says: the next one gets its turn at once, not only when
// that one has answered, which is charged until then all the same, and overruns as any other.
//
// Driving it: tell every event, then ask until there is no order more; ask again at wake_at_ns().
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
// A domain that wants the device alone has a turn without end and without bounds: no message while that lasts.
//
// What is believed of an executor: nothing that could gain it time. Its turn is charged by `now_ns`, from Grant until
// Drained (BusyMeter: of several that are at the device at once, each moment is divided). What it says about its sessions
// only divides that among its own allocations; names of others' are ignored. One that does not drain is not waited for:
// after overrun_ns the next one gets its turn beside it, it is charged meanwhile, loses the turn that it would get
// next, and is reported after report_ns. One that is only ever slow is behind by its own time. One that stays at the device
// beside others until it has had overrun_end_ns of their time is ended; until then it looks like a long kernel
// (docs/design/sharing-time.md). After an overrun of report_ns or more it gets no turn before the others have had what is theirs beside what
// it took: by weight, but no more than kPauseShare - 1 times as much; or before nobody else has wanted the device for quiet_ns. The tree alone
// would forget it: debts above max_debt_ns, and all of them whenever the others pause. A turn that a rescue from starvation gave counts against the next rescue with all that it overran.
//
// Cost: O(log of the allocations that want) an event and a decision; settling a turn walks over the allocations that its
// executor named. All sums are exact: charged_ns of all domains is the time in which somebody had a turn
// and wanted it, and unattributed_ns() is what belonged to allocations that were gone.
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
  // Handing over leaves the device idle for what a message, the drain and a switch of contexts take. A
  // twentieth of a millisecond of that is 1 % of this.
  uint64_t quantum_ns = 5'000'000;
  // What is in flight when a turn ends runs into the next one's.
  uint64_t in_flight_ns = 1'000'000;
  // … of a class below one that has work, or had some within higher_linger_ns.
  uint64_t lower_in_flight_ns = 200'000;
  uint64_t higher_linger_ns = 100'000'000;
  uint64_t starvation_ns = 100'000'000;  // where a policy does not say; 0: lower classes may starve
  // Two quanta: whoever is still there does not run out, it runs on.
  uint64_t overrun_ns = 10'000'000;
  uint64_t report_ns = 1'000'000'000;
  // As long as the share tree remembers debts of those that are idle.
  uint64_t quiet_ns = 10'000'000'000;
  // Of the device's time beside others, as it is charged. Of a domain for which SetOverrunEnd has said nothing else.
  uint64_t overrun_end_ns = 300'000'000'000;
};

struct TurnOrder {
  enum class Kind : uint8_t { kGrant, kYield, kReport, kEnd };
  Kind kind;
  DomainId domain;
  Priority lowest;        // kGrant: no class below it may submit
  uint64_t in_flight_ns;  // kGrant: kUnbounded for a lone domain
};

// Of an executor's account of a turn.
struct Ran {
  AllocationId allocation_untrusted;
  uint64_t used_ns_untrusted;
};

class TurnArbiter {
 public:
  explicit TurnArbiter(const TurnLimits& limits = {});

  NamespaceId AddNamespace(const NamespacePolicy& policy, uint64_t now_ns);
  void SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns);
  void RemoveNamespace(NamespaceId id, uint64_t now_ns);  // without allocations
  DomainId AddDomain();
  void RemoveDomain(DomainId id, uint64_t now_ns);  // without allocations
  // How long a kernel of the domain may run differs by policy.
  void SetOverrunEnd(DomainId id, uint64_t overrun_end_ns) {
    At(id).overrun_end_ns = overrun_end_ns;
  }
  // The domain's executor has ended: its turn is over and nothing of it is at the device. Its allocations want nothing.
  void ExecutorEnded(DomainId id, uint64_t now_ns);
  AllocationId AddAllocation(NamespaceId space, DomainId domain, const AllocationPolicy& policy,
                             uint64_t now_ns);
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);
  void RemoveAllocation(AllocationId id, uint64_t now_ns);

  void SetWants(AllocationId id, bool wants, uint64_t now_ns);
  // Replaces what was said before; the next time charged is divided in these proportions. At most
  // kMaxNamed are looked at.
  void Divide(DomainId id, std::span<const Ran> division_untrusted, uint64_t now_ns);
  void Drained(DomainId id, uint64_t now_ns);

  std::optional<TurnOrder> Next(uint64_t now_ns);
  uint64_t wake_at_ns(uint64_t now_ns) const;

  uint64_t charged_ns(AllocationId id) const { return At(id).charged_ns; }
  uint64_t charged_ns(DomainId id) const { return meter_.charged_ns(static_cast<uint32_t>(id)); }
  uint64_t unattributed_ns() const { return unattributed_ns_; }
  uint64_t overruns(DomainId id) const { return At(id).overruns; }
  // Of the overrun that goes on: what of the device's time the domain has had beside others since it began.
  uint64_t overran_ns(DomainId id) const { return At(id).overran_ns; }
  // How much of the device's time the others are to have before the domain gets a turn again, because it overran; 0: it does not wait.
  uint64_t owes_ns(DomainId id) const { return OwesNs(static_cast<uint32_t>(id)); }
  uint64_t steps() const { return policy_.tree().steps(); }

  // As many sessions as a domain has at most, several times over.
  static constexpr size_t kMaxNamed = 4096;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  enum class State : uint8_t { kIdle, kGranted, kYielding, kOverrunning };

  struct Allocation {
    bool used = false;
    DomainId domain{};
    Priority priority = Priority::kNormal;
    ShareTree::Node leaf = ShareTree::kNone;
    bool wants = false;
    uint64_t charged_ns = 0;
  };
  struct Domain {
    bool used = false;
    State state = State::kIdle;
    uint32_t wanting = 0;  // allocations
    bool metered = false;
    bool out = false;      // is not to get a turn until somebody else has had one
    bool rescued = false;  // it had its last turn because its class had starved
    bool reported = false;
    bool ended = false;  // has been said
    uint64_t yields_since_ns = 0;
    uint64_t overran_ns = 0;
    uint64_t noted_ns = 0;  // of what the meter has charged it, when that was last added up
    // By what the others have been charged: when they have had what is theirs beside the overrun that goes on, and beside the last long
    // one.
    uint64_t evens_at_ns = 0;
    uint64_t even_at_ns = 0;
    uint64_t overrun_end_ns = 0;
    uint64_t overruns = 0;
    uint64_t paid_ns = 0;                   // of what the meter has charged it
    uint32_t winner = UINT32_MAX;           // the allocation because of which it had its last turn
    Priority priority = Priority::kNormal;  // the winner's
    std::vector<Ran> division;
    std::vector<uint32_t> allocations;
  };
  struct Turn {
    uint32_t domain = kNone;
    uint32_t allocation = kNone;  // because of which it was given; kNone when that has gone
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
  void Pay(uint32_t allocation, uint64_t ns, uint64_t now_ns);
  void NoteClasses(uint64_t now_ns);
  bool HigherLingers(uint64_t now_ns) const;
  uint32_t Choose(uint64_t now_ns);
  void BeginTurn(uint32_t allocation, uint64_t now_ns);
  void EndTurn(uint64_t now_ns);
  void BeginOverrun(uint32_t domain, uint64_t now_ns);
  bool IsLate(const Domain& domain, uint64_t now_ns) const;
  void LetIn(uint64_t now_ns);
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
  std::vector<uint32_t> leaving_;  // yield, and no longer have the turn
  std::vector<uint32_t> overrunning_;
  std::vector<uint32_t> out_;
  Turn turn_;
  uint32_t wanting_domains_ = 0;
  std::array<uint32_t, kPriorities> wanting_ = {};  // allocations
  std::array<bool, kPriorities> was_active_ = {};
  std::array<bool, kPriorities> ever_active_ = {};
  std::array<uint64_t, kPriorities> active_until_ns_ = {};
  std::array<uint32_t, kPriorities> left_by_ =
      {};  // the domain that wanted something of the class last
  uint64_t unattributed_ns_ = 0;
};

}  // namespace gpuloom::arbiter
