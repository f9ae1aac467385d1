// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/domain_arbiter.h"

#include <algorithm>
#include <cassert>

#include "agent/arbiter/cut_point.h"

namespace gpuloom::arbiter {

DomainArbiter::DomainArbiter(const EngineLimits& limits)
    : engines_{EngineArbiter(limits), EngineArbiter(limits), EngineArbiter(limits)},
      turn_in_flight_ns_(kUnbounded) {}

// Every engine gets the policy in the same order, so that a namespace or an allocation has the same
// id in all of them. Ceilings bind the kernels' engine only: timeShareMax does not bound copies.

NamespaceId DomainArbiter::AddNamespace(const NamespacePolicy& policy, uint64_t now_ns) {
  NamespacePolicy of_copies = policy;
  of_copies.ceiling_permille = kNoCeilingPermille;
  const NamespaceId id = At(Engine::kCompute).policy().AddNamespace(policy, now_ns);
  for (size_t i = 1; i < kEngines; ++i) {
    const NamespaceId same = engines_[i].policy().AddNamespace(of_copies, now_ns);
    assert(same == id);
    static_cast<void>(same);
  }
  return id;
}

void DomainArbiter::SetNamespace(NamespaceId id, const NamespacePolicy& policy, uint64_t now_ns) {
  NamespacePolicy of_copies = policy;
  of_copies.ceiling_permille = kNoCeilingPermille;
  At(Engine::kCompute).policy().SetNamespace(id, policy, now_ns);
  for (size_t i = 1; i < kEngines; ++i) engines_[i].policy().SetNamespace(id, of_copies, now_ns);
}

void DomainArbiter::RemoveNamespace(NamespaceId id, uint64_t now_ns) {
  for (EngineArbiter& engine : engines_) engine.policy().RemoveNamespace(id, now_ns);
}

AllocationId DomainArbiter::AddAllocation(NamespaceId space, const AllocationPolicy& policy,
                                          uint64_t now_ns) {
  AllocationPolicy of_copies = policy;
  of_copies.ceiling_permille = kNoCeilingPermille;
  const AllocationId id = At(Engine::kCompute).policy().AddAllocation(space, policy, now_ns);
  for (size_t i = 1; i < kEngines; ++i) {
    const AllocationId same = engines_[i].policy().AddAllocation(space, of_copies, now_ns);
    assert(same == id);
    static_cast<void>(same);
  }
  return id;
}

void DomainArbiter::SetAllocation(AllocationId id, const AllocationPolicy& policy,
                                  uint64_t now_ns) {
  AllocationPolicy of_copies = policy;
  of_copies.ceiling_permille = kNoCeilingPermille;
  At(Engine::kCompute).SetAllocation(id, policy, now_ns);
  for (size_t i = 1; i < kEngines; ++i) engines_[i].SetAllocation(id, of_copies, now_ns);
}

void DomainArbiter::RemoveAllocation(AllocationId id, uint64_t now_ns) {
  for (EngineArbiter& engine : engines_) engine.policy().RemoveAllocation(id, now_ns);
}

SessionId DomainArbiter::BeginSession(AllocationId allocation, uint64_t) {
  uint32_t place = sessions_;
  if (free_sessions_.empty()) {
    // So that the end of a session allocates nothing.
    if (free_sessions_.capacity() < ++sessions_) free_sessions_.reserve(2 * sessions_);
  } else {
    place = free_sessions_.back();
    free_sessions_.pop_back();
  }
  const SessionId session{place};
  for (EngineArbiter& engine : engines_) engine.AddSession(session, allocation);
  return session;
}

// What the session still has in flight does not keep the domain from having drained: the caller ends the session only
// when that work has run out or nobody is charged for it.
void DomainArbiter::EndSession(SessionId session, uint64_t now_ns) {
  kernels_in_flight_ -= At(Engine::kCompute).pieces_in_flight(session);
  for (EngineArbiter& engine : engines_) engine.RemoveSession(session, now_ns);
  free_sessions_.push_back(static_cast<uint32_t>(session));
}

bool DomainArbiter::MayRunFreely(SessionId session, uint64_t now_ns) const {
  return turn_is_endless() &&
         std::all_of(engines_.begin(), engines_.end(), [&](const EngineArbiter& engine) {
           return engine.MayRunFreely(session, now_ns);
         });
}

void DomainArbiter::NotePresent(SessionId session, uint64_t now_ns) {
  for (EngineArbiter& engine : engines_) engine.NotePresent(session, now_ns);
}

void DomainArbiter::Queued(SessionId session, Engine engine, const Work& work, uint64_t now_ns) {
  At(engine).Queued(session, work, now_ns);
}

void DomainArbiter::Dropped(SessionId session, Engine engine, const Work& work, uint64_t now_ns) {
  At(engine).Dropped(session, work, now_ns);
}

void DomainArbiter::Submitted(SessionId session, Engine engine, const Work& work, uint64_t now_ns) {
  if (engine == Engine::kCompute) kernels_in_flight_ += work.pieces;
  At(engine).Submitted(session, work, now_ns);
}

// Charging comes first: what is charged takes the place of the prediction, and both leave with the
// work. The other way round the charge would stand for other work that is still in flight. The
// domain's count falls by what the engine really took out, so that the two cannot drift apart.
void DomainArbiter::Finished(SessionId session, Engine engine, const Work& work,
                             uint64_t measured_ns, uint64_t now_ns) {
  const uint32_t before = At(engine).pieces_in_flight(session);
  At(engine).Charge(session, measured_ns, now_ns);
  At(engine).Finished(session, work, now_ns);
  if (engine != Engine::kCompute) return;
  kernels_in_flight_ -= before - At(engine).pieces_in_flight(session);
}

void DomainArbiter::Charge(SessionId session, Engine engine, uint64_t measured_ns,
                           uint64_t now_ns) {
  At(engine).Charge(session, measured_ns, now_ns);
}

void DomainArbiter::SetTurn(Priority lowest, uint64_t in_flight_ns) {
  has_turn_ = true;
  lowest_ = lowest;
  turn_in_flight_ns_ = in_flight_ns;
}

bool DomainArbiter::turn_is_endless() const {
  return has_turn_ && turn_in_flight_ns_ == kUnbounded;
}

uint64_t DomainArbiter::KernelsInFlightNs() const {
  uint64_t sum_ns = 0;
  for (const Priority priority : kAllPriorities) {
    sum_ns += At(Engine::kCompute).in_flight_ns(priority);
  }
  return sum_ns;
}

// The turn's bound holds for all classes and sessions of the domain together; what the engine
// decides is cut to what is left of it. An order's first piece may exceed the budget, so the turn
// is overshot by one piece at most.
std::optional<Order> DomainArbiter::Next(Engine engine, uint64_t now_ns) {
  if (engine != Engine::kCompute) return At(engine).Next(Priority::kLow, now_ns);
  if (!has_turn_) return std::nullopt;
  uint64_t room_ns = kUnbounded;
  if (turn_in_flight_ns_ != kUnbounded) {
    const uint64_t in_flight_ns = KernelsInFlightNs();
    if (in_flight_ns >= turn_in_flight_ns_) return std::nullopt;
    room_ns = turn_in_flight_ns_ - in_flight_ns;
  }
  auto order = At(engine).Next(lowest_, now_ns);
  if (order) order->budget_ns = std::min(order->budget_ns, room_ns);
  return order;
}

// Of kernels, without a turn only SetTurn changes anything, and that is an event; nor does time before something has
// finished where there is no room for more.
uint64_t DomainArbiter::wake_at_ns(uint64_t now_ns) const {
  uint64_t wake_ns = std::min(At(Engine::kCopyToDevice).wake_at_ns(Priority::kLow, now_ns),
                              At(Engine::kCopyFromDevice).wake_at_ns(Priority::kLow, now_ns));
  if (!has_turn_ || KernelsInFlightNs() >= turn_in_flight_ns_) return wake_ns;
  return std::min(wake_ns, At(Engine::kCompute).wake_at_ns(lowest_, now_ns));
}

// A chain longer than what a turn may have in flight would run into the next domain's turn.
uint64_t DomainArbiter::ChainBoundNs(SessionId session, uint64_t now_ns) const {
  return std::min(At(Engine::kCompute).ChainBoundNs(session, now_ns), turn_in_flight_ns_);
}

Waits DomainArbiter::waits(SessionId session, Engine engine, uint64_t now_ns) const {
  return At(engine).waits(session, now_ns);
}

uint64_t DomainArbiter::in_flight_ns(SessionId session, Engine engine) const {
  return At(engine).in_flight_ns(session);
}

uint64_t DomainArbiter::pieces_in_flight(SessionId session) const {
  uint64_t pieces = 0;
  for (const EngineArbiter& engine : engines_) pieces += engine.pieces_in_flight(session);
  return pieces;
}

uint64_t DomainArbiter::in_flight_ns(Priority priority, Engine engine) const {
  return At(engine).in_flight_ns(priority);
}

uint64_t DomainArbiter::steps() const {
  uint64_t sum = 0;
  for (const EngineArbiter& engine : engines_) sum += engine.steps();
  return sum;
}

}  // namespace gpuloom::arbiter
