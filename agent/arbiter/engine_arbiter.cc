// SPDX-License-Identifier: Apache-2.0
#include "agent/arbiter/engine_arbiter.h"

#include <algorithm>

#include "agent/arbiter/cut_point.h"

namespace gpuloom::arbiter {
namespace {

void Add(Work* sum, const Work& work) {
  sum->pieces += work.pieces;
  sum->predicted_ns += work.predicted_ns;
}

// What is taken out was put in before. If it were not, the sums would never return to zero.
void Subtract(Work* sum, const Work& work) {
  sum->pieces -= std::min(sum->pieces, work.pieces);
  sum->predicted_ns -= std::min(sum->predicted_ns, work.predicted_ns);
  if (sum->pieces == 0) sum->predicted_ns = 0;
}

}  // namespace

EngineArbiter::EngineArbiter(const EngineLimits& limits)
    : limits_(limits), policy_(limits.shares, limits.starvation_ns) {}

void EngineArbiter::SetAllocation(AllocationId id, const AllocationPolicy& policy,
                                  uint64_t now_ns) {
  policy_.SetAllocation(id, policy, now_ns);
  // Walks over all sessions: policy changes are not on the hot path. Out together and in together, because a class counts
  // allocations.
  const auto each = [&](auto&& change) {
    for (Session& it : sessions_) {
      if (it.leaf != ShareTree::kNone && it.allocation == id) change(it);
    }
  };
  each([this](Session& it) { AddToClass(it, -1); });
  each([&](Session& it) { it.priority = policy.priority; });
  each([this](Session& it) { AddToClass(it, 1); });
  NoteClasses(now_ns);
}

// Adds (sign 1) or takes out (-1) all that the session contributes to the sums of its class. Call
// it before any change of the session's work or class to take out, and after it to add: counted_ns
// is capped, so the sums cannot be kept by differences. `active_` counts all classes together, and
// is not changed here.
void EngineArbiter::AddToClass(Session& session, int sign) {
  Class& its = classes_[Index(session.priority)];
  if (sign < 0) {
    its.in_flight_ns -= session.in_flight.predicted_ns;
    its.counted_ns -= session.counted_ns;
  } else {
    session.counted_ns = std::min(session.in_flight.predicted_ns, limits_.session_in_flight_ns);
    its.in_flight_ns += session.in_flight.predicted_ns;
    its.counted_ns += session.counted_ns;
  }
  if (session.active) CountActive(session, sign);
}

// By allocations, so that one whose program forks is not rescued more often.
void EngineArbiter::CountActive(const Session& session, int sign) {
  uint32_t& of = active_of_[static_cast<size_t>(session.allocation)];
  const uint32_t before = of;
  of += static_cast<uint32_t>(sign);
  if (before == 0 || of == 0)
    classes_[Index(session.priority)].active += static_cast<uint32_t>(sign);
}

void EngineArbiter::AddSession(SessionId session, AllocationId allocation) {
  if (Index(session) >= sessions_.size()) sessions_.resize(Index(session) + 1);
  Session& it = At(session) = Session{};
  it.allocation = allocation;
  const auto number = static_cast<size_t>(allocation);
  if (number >= active_of_.size()) active_of_.resize(number + 1);
  it.priority = policy_.priority(allocation);
  it.leaf = policy_.tree().AddLeaf(policy_.group(allocation), 1);
  if (it.leaf >= session_of_leaf_.size()) session_of_leaf_.resize(it.leaf + 1);
  session_of_leaf_[it.leaf] = session;
}

void EngineArbiter::RemoveSession(SessionId session, uint64_t now_ns) {
  Session& it = At(session);
  AddToClass(it, -1);
  it.queued = it.in_flight = Work{};
  AddToClass(it, 1);
  Refresh(session, now_ns);
  policy_.tree().Remove(it.leaf, now_ns);
  it = Session{};
}

// Call after each change of what a session has queued, in flight, or may do: updates the share
// tree, and begins or ends the session's wait.
// A stalled session that may submit nothing is inactive in the tree: it is charged nothing for this
// engine, so siblings within the lag window would wait for it without end. It keeps its place as an
// active session of its class.
void EngineArbiter::Refresh(SessionId session, uint64_t now_ns) {
  Session& it = At(session);
  const bool queued = it.queued.pieces != 0;
  const bool active = queued || it.in_flight.pieces != 0;
  const bool ready = queued && it.in_flight.predicted_ns < limits_.session_in_flight_ns;
  if (active != it.active) {
    it.active = active;
    CountActive(it, active ? 1 : -1);
    active_ += active ? 1 : -1;
    active_xor_ ^= static_cast<uint32_t>(session);
  }
  policy_.tree().SetLeaf(it.leaf, active && (ready || !it.stalled), ready, now_ns);

  if (queued != it.waiting) {
    CloseWait(it, now_ns);
    it.waiting = queued;
    it.waiting_since_ns = now_ns;
    it.throttled_before_ns = policy_.tree().throttled_ns(it.leaf, now_ns);
  }
  NoteClasses(now_ns);
}

// Adds up a wait that lasts until `now_ns`. waits() calls it on a copy, so that asking changes
// nothing.
void EngineArbiter::CloseWait(Session& session, uint64_t now_ns) const {
  if (!session.waiting) return;
  const uint64_t waited_ns = now_ns - session.waiting_since_ns;
  // A ceiling that was bound or taken away meanwhile makes its count begin again.
  const uint64_t throttled_ns = policy_.tree().throttled_ns(session.leaf, now_ns);
  const uint64_t since_ns = throttled_ns - std::min(throttled_ns, session.throttled_before_ns);
  session.waits.queue_ns += waited_ns;
  session.waits.throttled_ns += std::min(waited_ns, since_ns);
}

Waits EngineArbiter::waits(SessionId session, uint64_t now_ns) const {
  Session it = At(session);
  CloseWait(it, now_ns);
  return it.waits;
}

// Records which classes have become active or idle since the last call. Both count as progress: a class without work was
// not starved, and one that becomes active again has its whole starvation bound ahead of it.
void EngineArbiter::NoteClasses(uint64_t now_ns) {
  for (const Priority priority : kAllPriorities) {
    Class& its = classes_[Index(priority)];
    const bool active = policy_.tree().active(priority);
    if (active == its.was_active) continue;
    its.was_active = active;
    its.ever_active = true;
    if (!active) its.active_until_ns = now_ns;
    guard_.HasNoWork(priority, now_ns);
  }
}

bool EngineArbiter::MayRunFreely(SessionId session, uint64_t now_ns) const {
  const Session& it = At(session);
  return !HigherLingers(it.priority, now_ns) && !policy_.tree().has_ceiling(it.leaf);
}

// A lone session that runs freely is not in the tree, because it reports no work. Lower classes that become active later
// must still see that a higher one was active a moment ago (HigherLingers).
void EngineArbiter::NotePresent(SessionId session, uint64_t now_ns) {
  Class& its = classes_[Index(At(session).priority)];
  its.ever_active = true;
  its.active_until_ns = now_ns;
}

void EngineArbiter::Queued(SessionId session, const Work& work, uint64_t now_ns) {
  Add(&At(session).queued, work);
  Refresh(session, now_ns);
}

void EngineArbiter::Dropped(SessionId session, const Work& work, uint64_t now_ns) {
  Subtract(&At(session).queued, work);
  Refresh(session, now_ns);
}

void EngineArbiter::Submitted(SessionId session, const Work& work, uint64_t now_ns) {
  Session& it = At(session);
  AddToClass(it, -1);
  Subtract(&it.queued, work);
  Add(&it.in_flight, work);
  AddToClass(it, 1);
  policy_.tree().AddInFlight(it.leaf, work.predicted_ns, now_ns);
  Refresh(session, now_ns);
}

void EngineArbiter::Finished(SessionId session, const Work& work, uint64_t now_ns) {
  Session& it = At(session);
  const uint64_t before_ns = it.in_flight.predicted_ns;
  AddToClass(it, -1);
  Subtract(&it.in_flight, work);
  AddToClass(it, 1);
  // By what was really taken out: the tree must not be left with more or less in flight than the
  // session has.
  policy_.tree().RemoveInFlight(it.leaf, before_ns - it.in_flight.predicted_ns, now_ns);
  guard_.NoteProgress(it.priority, now_ns);
  Refresh(session, now_ns);
}

// A charge is progress, as a completion is: a class whose single long kernel runs is not starved and needs no rescue.
void EngineArbiter::Charge(SessionId session, uint64_t measured_ns, uint64_t now_ns) {
  if (measured_ns == 0) return;
  Session& it = At(session);
  policy_.tree().Charge(it.leaf, measured_ns, now_ns);
  guard_.NoteProgress(it.priority, now_ns);
  NoteClasses(now_ns);
}

void EngineArbiter::SetStalled(SessionId session, bool stalled, uint64_t now_ns) {
  if (At(session).stalled == stalled) return;
  At(session).stalled = stalled;
  Refresh(session, now_ns);
}

bool EngineArbiter::HigherWorks(Priority priority) const {
  for (size_t i = 0; i < Index(priority); ++i) {
    if (classes_[i].was_active) return true;
  }
  return false;
}

std::optional<Priority> EngineArbiter::HighestWithin(Priority priority, uint64_t span_ns,
                                                     uint64_t now_ns) const {
  for (size_t i = 0; i < Index(priority); ++i) {
    const Class& its = classes_[i];
    if (its.was_active || (its.ever_active && now_ns - its.active_until_ns < span_ns)) {
      return kAllPriorities[i];
    }
  }
  return std::nullopt;
}

std::optional<Priority> EngineArbiter::HighestLingering(Priority priority, uint64_t now_ns) const {
  return HighestWithin(priority, limits_.higher_linger_ns, now_ns);
}

bool EngineArbiter::HigherLingers(Priority priority, uint64_t now_ns) const {
  return HighestLingering(priority, now_ns).has_value();
}

// Its pieces are, on average, too long to fit between those of a higher class. Only the average is
// known here: the queue is a sum, not a list. A rescue overrides this, or a class that has only
// long kernels would never be rescued.
bool EngineArbiter::MustWait(const Session& session, uint64_t room_ns, uint64_t now_ns) const {
  if (guard_.rescuing(session.priority)) return false;
  return HighestWithin(session.priority, limits_.higher_pause_ns, now_ns) &&
         session.queued.predicted_ns / std::max(session.queued.pieces, 1u) > room_ns;
}

// How much more the class may have in flight, in predicted time; 0: nothing, until some of it has
// finished.
uint64_t EngineArbiter::RoomNs(Priority priority, uint64_t now_ns) const {
  if (guard_.rescuing(priority)) {
    // A rescue is one order: once something is in flight, the class only has to make progress.
    return classes_[Index(priority)].in_flight_ns == 0 ? limits_.lower_in_flight_ns : 0;
  }
  if (const auto highest = HighestLingering(priority, now_ns)) {
    uint64_t lower_ns = 0;
    // All classes below that one share the bound, those between it and this one too: it waits for all of them.
    for (size_t i = Index(*highest) + 1; i < kPriorities; ++i) lower_ns += classes_[i].in_flight_ns;
    return limits_.lower_in_flight_ns - std::min(limits_.lower_in_flight_ns, lower_ns);
  }
  uint64_t counted_ns = 0;
  // Classes above count, because this one comes behind them; those below do not, or they would keep
  // a higher class from submitting.
  for (size_t i = 0; i <= Index(priority); ++i) counted_ns += classes_[i].counted_ns;
  return counted_ns >= limits_.total_in_flight_ns ? 0 : limits_.order_ns;
}

// A session that is the only active one is not metered out: its order has no bound, so that being
// alone costs nothing. active_xor_ is then its number.
std::optional<Order> EngineArbiter::ForOnlySession(Priority lowest, uint64_t now_ns) const {
  if (active_ != 1) return std::nullopt;
  const SessionId session{active_xor_};
  const Session& it = At(session);
  if (it.queued.pieces == 0 || it.priority > lowest || HigherLingers(it.priority, now_ns) ||
      policy_.tree().has_ceiling(it.leaf)) {
    return std::nullopt;
  }
  return Order{session, kUnbounded};
}

// Of several that are due, the one that has waited for longest. One rescue at a time; it ends when the class makes
// progress (Finished, Charge) or has no more work.
void EngineArbiter::StartRescue(Priority lowest, uint64_t now_ns) {
  guard_.BeginDue(lowest, now_ns,
                  [&](Priority priority) -> std::optional<StarvationGuard::Waiting> {
                    const Class& its = classes_[Index(priority)];
                    if (!its.was_active || !HigherWorks(priority)) return std::nullopt;
                    return {{its.active, policy_.starvation_ns(priority)}};
                  });
}

std::optional<Order> EngineArbiter::Next(Priority lowest, uint64_t now_ns) {
  ShareTree& tree = policy_.tree();
  tree.Wake(now_ns);
  NoteClasses(now_ns);
  if (const auto order = ForOnlySession(lowest, now_ns)) return order;
  // Before the classes are looked at: a rescue changes which of them pause.
  StartRescue(lowest, now_ns);
  for (const Priority priority : kAllPriorities) {
    if (priority > lowest) break;
    if (!classes_[Index(priority)].was_active || guard_.pauses(priority)) continue;
    const uint64_t room_ns = RoomNs(priority, now_ns);
    if (room_ns == 0) continue;
    const ShareTree::Node leaf = tree.Pick(priority);
    if (leaf == ShareTree::kNone) continue;
    const SessionId session = session_of_leaf_[leaf];
    // A lower class may still go: its pieces may be short enough.
    if (MustWait(At(session), room_ns, now_ns)) continue;
    const uint64_t own_ns = limits_.session_in_flight_ns - At(session).in_flight.predicted_ns;
    return Order{session, std::min(room_ns, own_ns)};
  }
  return std::nullopt;
}

// Considers only what changes by time alone: a ceiling that refills, a starvation bound that is
// reached, a higher class that has been idle for long enough. Completions and new work are events,
// after which Next is called anyway; so is the progress that ends a rescue.
uint64_t EngineArbiter::wake_at_ns(Priority lowest, uint64_t now_ns) const {
  uint64_t wake_ns = policy_.tree().wake_at_ns();
  if (guard_.rescuing()) return wake_ns;
  for (size_t i = 1; i <= Index(lowest); ++i) {
    const Priority priority = kAllPriorities[i];
    if (!classes_[i].was_active) continue;
    if (HigherWorks(priority)) {
      wake_ns = std::min(
          wake_ns, guard_.DueAtNs(priority, classes_[i].active, policy_.starvation_ns(priority)));
    } else if (HigherLingers(priority, now_ns)) {
      for (size_t higher = 0; higher < i; ++higher) {
        // Two things end with time: long pieces may go after the pause, and the bounds of a class
        // beside a higher one are lifted after the linger.
        for (const uint64_t span_ns : {limits_.higher_pause_ns, limits_.higher_linger_ns}) {
          const uint64_t free_ns = classes_[higher].active_until_ns + span_ns;
          if (classes_[higher].ever_active && free_ns > now_ns) {
            wake_ns = std::min(wake_ns, free_ns);
          }
        }
      }
    }
  }
  return wake_ns;
}

uint64_t EngineArbiter::ChainBoundNs(SessionId session, uint64_t now_ns) const {
  return HigherLingers(At(session).priority, now_ns) ? limits_.lower_in_flight_ns : kUnbounded;
}

}  // namespace gpuloom::arbiter
