// SPDX-License-Identifier: Apache-2.0
// Who may submit next, in one trust domain: the deciding core that an executor drives. It has no clock, no I/O
// and no CUDA: state and events go in, orders come out. Reasons and bounds: docs/design/sharing-time.md.
//
// Owned by the executor's loop and used by its ring thread only; it keeps no pointers of the caller's. Times
// are nanoseconds; `now_ns` is any clock that never goes back. Everything here is said by trusted code: what a tenant
// can do is queue work, and predictions order but never charge. An id that is not there is our bug (asserted).
//
// Wiring, from the executor's point of view:
//
//   a command may go to CUDA (all that it waits for has gone)      Queued(session, engine, {1, predicted})
//   in every round, and when wake_at_ns() has come, for each engine:
//     while (auto order = arbiter.Next(engine, now))
//       hand over pieces of order->session up to order->budget_ns;  Submitted(session, engine, work)
//       or, when none can go after all,                             Dropped(session, engine, work)
//     (Next says the same again until one of the two is said.)
//   in every round, when the meter is settled (busy_meter.h):       Charge(session, engine, meter.Take(…))
//   the device is done with it                                      Finished(session, engine, work, measured)
//   before a chunk begins:      cut.Update(mean_ns, arbiter.ChainBoundNs(session, now))   (cut_point.h)
//   before it sleeps, with work queued:                             until wake_at_ns()
//
// The `work` of Submitted, Dropped and Finished carries the predictions with which it was queued. Charge what still
// runs, too, at least every millisecond: others are held back by who is behind, and who runs one long kernel is
// not behind. Finished's `measured` is what Charge has not said yet of it; 0 where a meter says all.
//
// Turns. While several domains want the device, the scheduler gives turns (turn_arbiter.h): SetTurn says from which
// class up this domain may submit and how much may be in flight, EndTurn that it may not. Without either
// the domain has an endless turn and pays nothing for it.
//
// Cost: O(log of the active sessions) an event and a decision; nothing allocates but Add…, Set… and BeginSession.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "agent/arbiter/engine_arbiter.h"

namespace gpuloom::arbiter {

// Copies inside the device's memory, fills and graphs are the kernels' engine's work.
enum class Engine : uint8_t { kCompute, kCopyToDevice, kCopyFromDevice };
inline constexpr size_t kEngines = 3;

class DomainArbiter {
 public:
  explicit DomainArbiter(const EngineLimits& limits = {});

  // The policy, as it is now. Changes hold for the next order.
  NamespaceId AddNamespace(const NamespacePolicy& policy, uint64_t now_ns);
  void SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns);
  void RemoveNamespace(NamespaceId id, uint64_t now_ns);  // without allocations
  AllocationId AddAllocation(NamespaceId space, const AllocationPolicy& policy, uint64_t now_ns);
  void SetAllocation(AllocationId id, const AllocationPolicy& policy, uint64_t now_ns);
  void RemoveAllocation(AllocationId id, uint64_t now_ns);  // without sessions

  Priority priority(AllocationId id) const { return At(Engine::kCompute).policy().priority(id); }

  // Sessions of one allocation have equal shares of it.
  SessionId BeginSession(AllocationId allocation, uint64_t now_ns);
  // What it has queued and in flight is forgotten; call it when that has run out, or nobody is charged for it.
  void EndSession(SessionId session, uint64_t now_ns);

  // Whether the session, if it is the only one that wants the device, may submit without being asked about: no
  // ceiling binds it, no higher class has worked lately, the turn has no bound.
  bool MayRunFreely(SessionId session, uint64_t now_ns) const;
  // It wants the device, and is not asked about.
  void NotePresent(SessionId session, uint64_t now_ns);

  void Queued(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Dropped(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Submitted(SessionId session, Engine engine, const Work& work, uint64_t now_ns);
  void Finished(SessionId session, Engine engine, const Work& work, uint64_t measured_ns,
                uint64_t now_ns);
  void Charge(SessionId session, Engine engine, uint64_t measured_ns, uint64_t now_ns);

  // All that it has in flight for the engine waits at the device for its own work of another one, and is charged nothing:
  // others need not wait until it has caught up with them.
  void SetStalled(SessionId session, Engine engine, bool stalled, uint64_t now_ns) {
    At(engine).SetStalled(session, stalled, now_ns);
  }

  // `in_flight_ns`: of all sessions together and each engine, but for one piece; kUnbounded for a lone domain.
  void SetTurn(Priority lowest, uint64_t in_flight_ns);
  void EndTurn() { has_turn_ = false; }
  bool has_turn() const { return has_turn_; }
  // It has one, and nobody else waits for it.
  bool turn_is_endless() const;
  // Nothing of the domain is at the device: a turn that has ended is acknowledged.
  bool drained() const { return pieces_in_flight_ == 0; }

  std::optional<Order> Next(Engine engine, uint64_t now_ns);
  // When Next may answer otherwise without an event.
  uint64_t wake_at_ns(uint64_t now_ns) const;
  uint64_t ChainBoundNs(SessionId session, uint64_t now_ns) const;

  Waits waits(SessionId session, Engine engine, uint64_t now_ns) const;
  uint64_t in_flight_ns(SessionId session, Engine engine) const;
  uint64_t in_flight_ns(Priority priority, Engine engine) const;
  uint64_t steps() const;  // looked at in all decisions so far

 private:
  EngineArbiter& At(Engine engine) { return engines_[static_cast<size_t>(engine)]; }
  const EngineArbiter& At(Engine engine) const { return engines_[static_cast<size_t>(engine)]; }
  uint64_t InFlightNs(Engine engine) const;

  std::array<EngineArbiter, kEngines> engines_;
  uint32_t sessions_ = 0;  // numbers that have been given out
  std::vector<uint32_t> free_sessions_;
  uint64_t pieces_in_flight_ = 0;
  bool has_turn_ = true;
  Priority lowest_ = Priority::kLow;
  uint64_t turn_in_flight_ns_;
};

}  // namespace gpuloom::arbiter
