// SPDX-License-Identifier: Apache-2.0
// Who may submit next, within one trust domain: the deciding core that an executor drives. It has no clock, no I/O and
// no CUDA: state and events go in, orders come out. Reasons and bounds: docs/design/sharing-time.md.
//
// Owned by the executor's loop and used by its ring thread only; it keeps no pointers of the caller's. Times are
// nanoseconds; `now_ns` is any clock that never goes back. All its input comes from trusted code: a tenant can only
// queue work, and predictions decide the order but never a charge. An id that does not exist is our bug (asserted).
//
// How the executor uses it:
//
//   a command may go to CUDA (all that it waits for is done)       Queued(session, engine, {1, predicted})
//   in every round, and when wake_at_ns() has come, for each engine:
//     while (auto order = arbiter.Next(engine, now))
//       submit pieces of order->session up to order->budget_ns;     Submitted(session, engine, work)
//       or, when none can go after all,                             Dropped(session, engine, work)
//     (Until one of the two is called, Next gives the same order again.)
//   in every round, when the meter is settled (busy_meter.h):       Charge(session, engine, meter.Take(…))
//   the device is done with it                                      Finished(session, engine, work, measured)
//   before a chunk begins:      cut.Update(mean_ns, arbiter.ChainBoundNs(session, now))   (cut_point.h)
//   before it sleeps, with work queued:                             until wake_at_ns()
//
// The `work` of Submitted, Dropped and Finished carries the predictions with which it was queued. Also charge what
// still runs, at least every millisecond: sessions wait for those that are behind, and a session that runs one long
// kernel is not behind. Finished's `measured` is the part that Charge has not covered yet; 0 where a meter covers
// everything.
//
// Turns. While several domains want the device's kernels' engine, the scheduler gives turns (turn_arbiter.h): SetTurn
// says which classes of this domain may submit kernels and how much may be in flight; EndTurn says that nothing may.
// Without either, the domain has an endless turn and pays nothing for it. Copy engines work for several contexts side by
// side, and beside any context's kernels: they know no turns.
//
// Cost: O(log of the active sessions) for an event or a decision; only Add…, Set… and BeginSession allocate.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/arbiter/engine_arbiter.h"

namespace gpuloom::arbiter {

// Copies within the device's memory, fills and graphs belong to the kernels' engine.
enum class Engine : uint8_t { kCompute, kCopyToDevice, kCopyFromDevice };
inline constexpr size_t kEngines = 3;

class DomainArbiter {
 public:
  explicit DomainArbiter(const EngineLimits& limits = {});

  // Sets the policy. Changes apply from the next order on.
  NamespaceId AddNamespace(const NamespacePolicy& policy, uint64_t now_ns);
  void SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns);
  void RemoveNamespace(NamespaceId id, uint64_t now_ns);  // when it has no allocations
  AllocationId AddAllocation(NamespaceId space, const AllocationPolicy& policy, uint64_t now_ns);
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);
  void RemoveAllocation(AllocationId id, uint64_t now_ns);  // when it has no sessions

  // Whether it would be rid of something, on any engine, if it were removed now and added again.
  template <typename Id>
  bool Owes(Id id, uint64_t now_ns) const {
    return std::any_of(engines_.begin(), engines_.end(), [&](const EngineArbiter& engine) {
      return engine.policy().Owes(id, now_ns);
    });
  }

  Priority priority(AllocationId id) const { return At(Engine::kCompute).policy().priority(id); }

  // Sessions of one allocation have equal shares of it.
  SessionId BeginSession(AllocationId allocation, uint64_t now_ns);
  // Forgets what the session has queued and in flight. Call it when nothing is left at the device, or when nobody is
  // charged for what is.
  void EndSession(SessionId session, uint64_t now_ns);

  // Whether the session, if no other one wants the device, may submit without asking the arbiter: no
  // ceiling binds it, no higher class has worked lately, and the turn has no bound.
  bool MayRunFreely(SessionId session, uint64_t now_ns) const;
  // The session wants the device and submits without asking.
  void NotePresent(SessionId session, uint64_t now_ns);

  void Queued(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Dropped(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Submitted(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Finished(SessionId session, Engine engine, const Work& work, uint64_t measured_ns,
                uint64_t now_ns);
  void Charge(SessionId session, Engine engine, uint64_t measured_ns, uint64_t now_ns);

  // All that the session has in flight for this engine waits at the device for its own work on another engine, and is
  // charged nothing. Others need not wait until it has caught up with them.
  void SetStalled(SessionId session, Engine engine, bool stalled, uint64_t now_ns) {
    At(engine).SetStalled(session, stalled, now_ns);
  }

  // `in_flight_ns`: a bound for all sessions' kernels together, which one piece may exceed; kUnbounded for a lone domain.
  void SetTurn(Priority lowest, uint64_t in_flight_ns);
  void EndTurn() { has_turn_ = false; }
  bool has_turn() const { return has_turn_; }
  // The domain has a turn, and nobody else waits for it.
  bool turn_is_endless() const;
  // No kernel of the domain is at the device: a turn that has ended can be acknowledged.
  bool drained() const { return kernels_in_flight_ == 0; }

  std::optional<Order> Next(Engine engine, uint64_t now_ns);
  // When the answer of Next may change without an event.
  uint64_t wake_at_ns(uint64_t now_ns) const;
  uint64_t ChainBoundNs(SessionId session, uint64_t now_ns) const;

  Waits waits(SessionId session, Engine engine, uint64_t now_ns) const;
  uint64_t in_flight_ns(SessionId session, Engine engine) const;
  uint64_t pieces_in_flight(SessionId session) const;
  uint64_t in_flight_ns(Priority priority, Engine engine) const;
  uint64_t steps() const;  // nodes looked at in all decisions so far

 private:
  EngineArbiter& At(Engine engine) { return engines_[static_cast<size_t>(engine)]; }
  const EngineArbiter& At(Engine engine) const { return engines_[static_cast<size_t>(engine)]; }
  uint64_t KernelsInFlightNs() const;

  std::array<EngineArbiter, kEngines> engines_;
  uint32_t sessions_ = 0;  // how many numbers have been given out
  std::vector<uint32_t> free_sessions_;
  uint64_t kernels_in_flight_ = 0;
  bool has_turn_ = true;
  Priority lowest_ = Priority::kLow;
  uint64_t turn_in_flight_ns_;
};

}  // namespace gpuloom::arbiter
