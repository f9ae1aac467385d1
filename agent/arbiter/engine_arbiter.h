// SPDX-License-Identifier: Apache-2.0
// Who may submit next to one engine of a device (that of the kernels, or a copy engine) within one trust domain, and
// how much. Owned by DomainArbiter, which has one for each engine and documents the contract with the executor; this
// header documents how it decides.
//
// 1. Classes: the highest class that has a ready session (ShareTree::Pick); StarvationGuard makes exceptions.
// 2. Inside a class: the share tree.
// 3. How much may be in flight, in predicted time (EngineLimits):
//    - a session alone, with nothing of a higher class lately and no ceiling: as much as it likes;
//    - sessions of one class: each up to session_in_flight_ns, so that completions are seen and more is submitted
//      before the device runs dry; together up to total_in_flight_ns, of which one session counts
//      for no more than its own bound, so that a newcomer is not behind a thousand others;
//    - classes below one that has work, or had some within higher_linger_ns: all together
//      lower_in_flight_ns. A higher class in streams of a higher priority waits for that and one piece.
//    Each bound is exceeded by at most one piece. But while the higher class is at work (higher_pause_ns), pieces that
//    are longer than what is left of the bound wait: one of them would run between any two kernels of a program whose
//    speed is that of its launches.
//
// All times are nanoseconds; `now_ns` never goes back. An event or a decision costs O(log of the active sessions); only
// AddSession and what the policy adds allocate. One thread. Nothing fails: a wrong id is our bug.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/arbiter/policy_tree.h"
#include "agent/arbiter/starvation_guard.h"
#include "agent/arbiter/work.h"

namespace gpuloom::arbiter {

struct EngineLimits {
  ShareTree::Limits shares;
  // About ten times what passes from the end of a kernel until the next one is submitted.
  uint64_t session_in_flight_ns = 500'000;
  // As far ahead as the executor submits to CUDA in any case (stream_set.h).
  uint64_t total_in_flight_ns = 8'000'000;
  // One order among peers: long enough that decisions are rare, and short against the lag window.
  uint64_t order_ns = 200'000;
  uint64_t lower_in_flight_ns = 100'000;
  // Requests of one server come closer together than this; the next request would have to wait for work submitted in
  // between.
  uint64_t higher_linger_ns = 100'000'000;
  // A higher class that has had no work for this long is between two requests. Programs launch every 8 to 30 µs, and
  // have longer gaps in between.
  uint64_t higher_pause_ns = 250'000;
  uint64_t starvation_ns = 100'000'000;  // where a policy sets none; 0: lower classes may starve
};

class EngineArbiter {
 public:
  explicit EngineArbiter(const EngineLimits& limits);

  // Namespaces and allocations. When an allocation changes its class, its sessions follow.
  PolicyTree& policy() { return policy_; }
  const PolicyTree& policy() const { return policy_; }
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);

  void AddSession(SessionId session, AllocationId allocation);
  void RemoveSession(SessionId session, uint64_t now_ns);

  // As in DomainArbiter.
  bool MayRunFreely(SessionId session, uint64_t now_ns) const;
  void NotePresent(SessionId session, uint64_t now_ns);

  void Queued(SessionId session, const Work& work, uint64_t now_ns);
  void Dropped(SessionId session, const Work& work, uint64_t now_ns);
  void Submitted(SessionId session, const Work& work, uint64_t now_ns);
  void Finished(SessionId session, const Work& work, uint64_t now_ns);
  void Charge(SessionId session, uint64_t measured_ns, uint64_t now_ns);
  void SetStalled(SessionId session, bool stalled, uint64_t now_ns);

  // No class below `lowest` gets an order.
  std::optional<Order> Next(Priority lowest, uint64_t now_ns);
  // When the answer of Next may change without an event; UINT64_MAX: never.
  uint64_t wake_at_ns(Priority lowest, uint64_t now_ns) const;

  // How long a chain of the session may last; kUnbounded while there is no higher class.
  uint64_t ChainBoundNs(SessionId session, uint64_t now_ns) const;
  uint32_t pieces_in_flight(SessionId session) const { return At(session).in_flight.pieces; }
  uint64_t in_flight_ns(SessionId session) const { return At(session).in_flight.predicted_ns; }
  uint64_t in_flight_ns(Priority priority) const { return classes_[Index(priority)].in_flight_ns; }
  uint64_t queued_pieces(SessionId session) const { return At(session).queued.pieces; }
  Waits waits(SessionId session, uint64_t now_ns) const;
  uint64_t steps() const { return policy_.tree().steps(); }

 private:
  struct Session {
    ShareTree::Node leaf = ShareTree::kNone;
    AllocationId allocation{};
    Priority priority = Priority::kNormal;
    bool stalled = false;
    bool active = false;  // has work
    Work queued;
    Work in_flight;
    uint64_t counted_ns = 0;  // the part of what is in flight that its class's counted_ns includes
    bool waiting = false;     // has some queued
    uint64_t waiting_since_ns = 0;
    uint64_t throttled_before_ns = 0;
    Waits waits;
  };

  struct Class {
    uint32_t active = 0;  // allocations with active sessions
    uint64_t in_flight_ns = 0;
    uint64_t counted_ns = 0;  // the sum over sessions, each up to its own bound
    bool was_active = false;
    bool ever_active = false;
    uint64_t active_until_ns = 0;  // the last moment
  };

  Session& At(SessionId session) { return sessions_[Index(session)]; }
  const Session& At(SessionId session) const { return sessions_[Index(session)]; }
  void AddToClass(Session& session, int sign);
  void CountActive(const Session& session, int sign);
  void Refresh(SessionId session, uint64_t now_ns);
  void CloseWait(Session& session, uint64_t now_ns) const;
  void NoteClasses(uint64_t now_ns);
  bool HigherWorks(Priority priority) const;
  bool HigherLingers(Priority priority, uint64_t now_ns) const;
  // The highest class above it that works, or did within the span.
  std::optional<Priority> HighestWithin(Priority priority, uint64_t span_ns, uint64_t now_ns) const;
  std::optional<Priority> HighestLingering(Priority priority, uint64_t now_ns) const;
  bool MustWait(const Session& session, uint64_t room_ns, uint64_t now_ns) const;
  uint64_t RoomNs(Priority priority, uint64_t now_ns) const;
  std::optional<Order> ForOnlySession(Priority lowest, uint64_t now_ns) const;
  void StartRescue(Priority lowest, uint64_t now_ns);

  const EngineLimits limits_;
  PolicyTree policy_;
  StarvationGuard guard_;
  std::vector<Session> sessions_;
  std::vector<SessionId> session_of_leaf_;
  std::vector<uint32_t> active_of_;  // by allocation, how many of its sessions are active
  std::array<Class, kPriorities> classes_;
  uint32_t active_ = 0;
  // With one active session this is its number, so that no list is needed to find it.
  uint32_t active_xor_ = 0;
};

}  // namespace gpuloom::arbiter
