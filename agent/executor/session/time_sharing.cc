// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/session/time_sharing.h"

#include <algorithm>
#include <utility>

#include "agent/arbiter/terms.h"
#include "agent/executor/session/session.h"
#include "agent/executor/session/slice.h"
#include "agent/executor/stream/work_counts.h"
#include "agent/executor/trace/tracer.h"

namespace gpuloom::executor {
namespace {

using arbiter::Engine;
using arbiter::kEngines;

// How often usage is charged while sessions are limited: the arbiter's decisions depend on it.
constexpr uint64_t kSettleEveryNs = 50'000;
// While no session is limited: only usage depends on it.
constexpr uint64_t kSettleSeldomNs = 500'000;

// For how long sessions still count as sharing the device after several last had work for it: a program that
// synchronises has none from time to time.
constexpr uint64_t kSeveralNs = 5'000'000;

// How long a limited session's work may be at the device with no completion before SubmitToIdleStreams submits to the
// session's idle streams out of order, at least. Long compared with the work in flight, short compared with a program's
// time-outs.
constexpr uint64_t kStalledNs = 10'000'000;
// The same while another executor has the turn: a session that merely waits for its turn has had it well before.
constexpr uint64_t kStalledWithoutTurnNs = 100'000'000;

constexpr Engine kAllEngines[] = {Engine::kCompute, Engine::kCopyToDevice, Engine::kCopyFromDevice};

arbiter::DomainMembers::Terms TermsOf(const control::ShareTerms& shares, uint32_t slots,
                                      uint32_t rescue_after_ms) {
  return {arbiter::OfNamespace(shares), arbiter::OfAllocation(shares, slots, rescue_after_ms)};
}

// Commands that this round reads.
bool Comes(const Session& session) { return !session.held() && session.HasWork(); }

}  // namespace

TimeSharing::TimeSharing(bool enforces, uint64_t (*clock)()) : enforces_(enforces), clock_(clock) {}

Share TimeSharing::Begin(const control::AddSession& order) {
  const uint64_t now = now_ns();
  ++changes_;
  Share share;
  share.allocation = members_.Join(order.namespace_id, order.allocation_id,
                                   TermsOf(order.shares, order.slots, order.rescue_after_ms), now);
  share.session = arbiter_.BeginSession(share.allocation, now);
  share.session_id = order.session_id;
  share.allocation_id = order.allocation_id;
  share.kernels = order.kernels;
  // Applies until the next Update, which decides: a newcomer among limited sessions must not get
  // ahead of them.
  share.limited = limited_;
  share.stall.WentOn(now);
  return share;
}

// Its number is not given to another session before the meters have settled what it did.
void TimeSharing::End(Share* share) {
  const uint64_t now = now_ns();
  const bool limited = share->limited;
  SetLimited(share, false, now);
  ended_.push_back({share->session, share->allocation, limited, now});
}

void TimeSharing::ForgetEnded(uint64_t now_ns) {
  while (!ended_.empty() && now_ns - ended_.front().at_ns > arbiter::WorkMeter::kLatestNs) {
    const Ended it = ended_.front();
    ended_.pop_front();
    for (const Engine engine : kAllEngines) {
      // Settled after its end: no session is shown it any more, and its allocation owes it all the same.
      const uint64_t used_ns = meter(engine).Take(it.session);
      if (it.limited) arbiter_.Charge(it.session, engine, used_ns, now_ns);
    }
    predictor_.Forget(static_cast<uint32_t>(it.session));
    arbiter_.EndSession(it.session, now_ns);
    members_.Leave(it.allocation);
  }
  if (now_ns - forgot_ns_ < arbiter::WorkMeter::kLatestNs) return;
  forgot_ns_ = now_ns;
  members_.Forget(now_ns);
}

void TimeSharing::Set(const control::SetShares& order) {
  // If it is not known, its sessions have ended meanwhile.
  changes_ += members_.Set(order.allocation_id,
                           TermsOf(order.shares, order.slots, order.rescue_after_ms), now_ns());
}

void TimeSharing::SetTurn(arbiter::Priority lowest, uint64_t in_flight_ns) {
  arbiter_.SetTurn(lowest, in_flight_ns);
}

void TimeSharing::EndTurn() { arbiter_.EndTurn(); }

// Sessions that compute on different multiprocessors take nothing from one another.
bool TimeSharing::Meets(const Session& session) {
  const arbiter::SmGroups its = session.Multiprocessors();
  return (std::exchange(used_, used_ | its) & its) != 0;
}

// Decides for each session whether it is limited in this round.
void TimeSharing::Update(Sessions sessions, uint64_t now_ns) {
  if (!enforces_) return;
  int wanting = 0;
  bool meet = false;
  used_ = 0;
  Session* last = nullptr;
  for (const auto& session : sessions) {
    if (!session->WantsDevice(now_ns) && !Comes(*session)) continue;
    ++wanting;
    meet |= Meets(*session);
    last = session.get();
  }
  const uint64_t now = round_ns_ = clock_();
  if (meet) several_ns_ = now;
  several_ = meet || (several_ns_ != 0 && now - several_ns_ < kSeveralNs);
  limited_ = false;
  for (const auto& session : sessions) {
    Share& share = session->share();
    // While others wait for this turn, sessions that want nothing yet are limited, too: what they
    // send must wait. So must the work of a newcomer while another session is at work.
    const bool limits = several_ || !turn_is_endless() || (wanting == 1 && session.get() != last) ||
                        !arbiter_.MayRunFreely(share.session, now);
    limited_ |= limits;
    if (limits != share.limited) SetLimited(&share, limits, now);
  }
  may_meet_ = !limited_ && sessions.size() > 1;
  // So that lower classes know of it; it is not limited meanwhile.
  if (wanting == 1 && !last->share().limited) arbiter_.NotePresent(last->share().session, now);
}

// Programs that begin together, or whose commands came while the driver kept the ring thread. Each would send all that it has,
// of unknown length, and who is at the device first would pay for the time in which the others' runs.
void TimeSharing::LimitIfNotFirst(Session* session, uint64_t now_ns) {
  if (session->share().limited || !Comes(*session) || session->WantsDevice(now_ns)) return;
  if (!Meets(*session)) return;
  several_ = limited_ = true;
  several_ns_ = round_ns_;
  SetLimited(&session->share(), true, round_ns_);
}

// A session that submits freely has nothing queued as far as the arbiter knows.
void TimeSharing::SetLimited(Share* share, bool limited, uint64_t now_ns) {
  share->limited = limited;
  share->stall.WentOn(now_ns);
  if (limited) return;
  for (const Engine engine : kAllEngines) {
    arbiter::Work& queued = share->queued[static_cast<size_t>(engine)];
    arbiter_.Dropped(share->session, engine, std::exchange(queued, {}), now_ns);
  }
}

// The arbiter need not know all that is queued, only what could go now.
void TimeSharing::NoteReady(Session* session, uint64_t now_ns) {
  Share& share = session->share();
  const std::array<arbiter::Work, kEngines> ready = session->Ready();
  for (const Engine engine : kAllEngines) {
    const size_t i = static_cast<size_t>(engine);
    arbiter::Work& queued = share.queued[i];
    if (queued.pieces == ready[i].pieces && queued.predicted_ns == ready[i].predicted_ns) continue;
    const arbiter::Work before = std::exchange(queued, ready[i]);
    // The order matters: the session must not look idle in between.
    arbiter_.Queued(share.session, engine, ready[i], now_ns);
    arbiter_.Dropped(share.session, engine, before, now_ns);
  }
}

// Tells the arbiter what each session could use, then carries out its orders until it has none:
// engine by engine, since they work side by side. The slice bounds it all, because one order may
// submit much.
bool TimeSharing::GiveOrders(Sessions sessions, uint64_t slice_ns) {
  if (!limited_) return false;
  const uint64_t now = clock_();
  by_session_.clear();
  for (const auto& session : sessions) {
    const size_t place = Index(session->share().session);
    if (place >= by_session_.size()) by_session_.resize(place + 1);
    by_session_[place] = session.get();
    NoteReady(session.get(), now);
    for (const Engine engine : kAllEngines) {
      const Share& share = session->share();
      const bool at_head = share.heads[static_cast<size_t>(engine)] != 0;
      // In flight for this engine, but at no stream's head: it waits for the session's own work on
      // another engine.
      arbiter_.SetStalled(share.session, engine,
                          !at_head && arbiter_.in_flight_ns(share.session, engine) != 0, now);
    }
  }
  bool any = false;
  Slice round(slice_ns * std::max<size_t>(sessions.size(), 1));
  for (const Engine engine : kAllEngines) {
    while (const auto order = arbiter_.Next(engine, now)) {
      Session* session = by_session_[Index(order->session)];
      any |= Order(session, engine, {true, false, order->budget_ns, {}}, now, slice_ns);
      // There may be more orders even if none of these could be submitted: the loop must call Next again before it
      // sleeps.
      if (round.Over()) {
        any = true;
        break;
      }
    }
  }
  for (const auto& session : sessions) any |= SubmitToIdleStreams(session.get(), now, slice_ns);
  return any;
}

// Opens the room of one engine while the session submits; the session's other engines stay closed.
// Room::submitted then says what has gone.
bool TimeSharing::Order(Session* session, Engine engine, Share::Room room, uint64_t now_ns,
                        uint64_t slice_ns) {
  Share& share = session->share();
  share.room(engine) = room;
  Slice slice(slice_ns);
  session->SubmitOrdered(&slice);
  share.room(engine).open = false;
  const arbiter::Work submitted = share.room(engine).submitted;
  if (submitted.pieces == 0) {
    // Nothing can be submitted after all; NoteReady reports it again in the next round.
    arbiter::Work& queued = share.queued[static_cast<size_t>(engine)];
    arbiter_.Dropped(share.session, engine, std::exchange(queued, {}), now_ns);
    return false;
  }
  NoteWait(&share, engine, now_ns);
  // Also counts what was not known to be queued.
  arbiter_.Queued(share.session, engine, submitted, now_ns);
  arbiter_.Submitted(share.session, engine, submitted, now_ns);
  NoteReady(session, now_ns);
  if (!room.idle_streams) share.stall.HadATurn();
  return true;
}

// The arbiter's sums grow while the session waits; their growth since the last order is how long
// this one was waited for.
void TimeSharing::NoteWait(Share* share, Engine engine, uint64_t now_ns) const {
  arbiter::Waits& counted = share->waits_counted[static_cast<size_t>(engine)];
  const arbiter::Waits before =
      std::exchange(counted, arbiter_.waits(share->session, engine, now_ns));
  Observe(counted.queue_ns - before.queue_ns, &share->counts.queue);
  const uint64_t throttled_ns = counted.throttled_ns - before.throttled_ns;
  if (throttled_ns != 0) Observe(throttled_ns, &share->counts.throttled);
}

// A kernel may wait for work that its own program has queued in another stream, so a session's work at the device must not
// keep its other streams waiting for ever. A session with no completion for long may therefore submit to its streams that
// have nothing at the device, out of turn too.
bool TimeSharing::SubmitToIdleStreams(Session* session, uint64_t now_ns, uint64_t slice_ns) {
  Share& share = session->share();
  if (!session->HasKernelsAtDevice()) share.stall.WentOn(now_ns);
  const uint64_t least_ns = arbiter_.has_turn() ? kStalledNs : kStalledWithoutTurnNs;
  // While it is held the time goes on: where others ask for quiet moments all the time, it would never come to an end.
  if (session->held() || !share.stall.IsDue(least_ns, now_ns)) return false;
  const uint64_t before = arbiter_.pieces_in_flight(share.session);
  bool tried = false;
  bool any = false;
  for (const Engine engine : kAllEngines) {
    if (share.queued[static_cast<size_t>(engine)].pieces == 0) continue;
    tried = true;
    // To idle streams only: what comes after the kernel in its own stream cannot unblock it. No more than it has waited for at
    // least: of a thousand streams with long kernels one.
    any |= Order(session, engine, {true, true, kStalledNs, {}}, now_ns, slice_ns);
  }
  if (any) {
    share.stall.Submitted(before, least_ns, now_ns);
  } else if (tried) {
    share.stall.WentOn(now_ns);  // to look again in each round would cost too much
  }
  return any;
}

// In the order in which they came to the device: two of which one waited for the other are often
// seen to end at once.
void TimeSharing::FinishMarks() {
  std::sort(reached_.begin(), reached_.end(), [](const Reached& a, const Reached& b) {
    return a.tally.engine != b.tally.engine ? a.tally.engine < b.tally.engine
                                            : a.seen.piece < b.seen.piece;
  });
  for (auto next = reached_.begin(); next != reached_.end();) {
    const auto begin = next;
    seen_.clear();
    for (; next != reached_.end() && next->tally.engine == begin->tally.engine; ++next) {
      seen_.push_back(next->seen);
    }
    meter(begin->tally.engine).End(seen_, looked_ns_);
    for (auto mark = begin; mark != next; ++mark) {
      FinishMark(*mark, seen_[static_cast<size_t>(mark - begin)].took);
    }
  }
  reached_.clear();
  looked_ns_ = round_ns_;
}

void TimeSharing::FinishMark(const Reached& mark, const arbiter::Duration& took) {
  const arbiter::Work& work = mark.tally.work;
  if (tracer_ != nullptr && tracer_->notes()) {
    // As the meter believes that it began.
    const uint64_t ran_ns = std::clamp(mark.tally.alone_ns, took.least_ns, took.most_ns);
    const uint64_t at_ns = mark.seen.at_ns;
    tracer_->Reached(mark.tally, mark.session_id, mark.stream, at_ns - ran_ns, at_ns);
  }
  if (work.pieces == 0 || !mark.tally.alike) return;
  arbiter::LaunchKey key = mark.tally.key;
  key.owner = static_cast<uint32_t>(mark.session);
  key.allocation = static_cast<uint32_t>(mark.allocation);
  predictor_.Learn(
      key, {took.least_ns / work.pieces, took.most_ns / work.pieces, took.late_ns / work.pieces});
}

// Learning comes with each round, charging less often: it costs a look at all sessions for each
// engine.
void TimeSharing::Settle(Sessions sessions) {
  FinishMarks();
  const uint64_t now = clock_();
  if (now - settled_ns_ < (limited_ ? kSettleEveryNs : kSettleSeldomNs)) return;
  settled_ns_ = now;
  for (const Engine engine : kAllEngines) {
    arbiter::WorkMeter& its = meter(engine);
    its.Settle(now);
    for (const auto& session : sessions) {
      Share& share = session->share();
      const uint64_t used_ns = its.Take(share.session);
      if (used_ns == 0) continue;
      share.used_ns[static_cast<size_t>(engine)] += used_ns;
      // Who was alone owes the others nothing for it.
      if (share.limited) arbiter_.Charge(share.session, engine, used_ns, now);
    }
  }
  ForgetEnded(now);
}

// For Turns. What the arbiter knows to be queued could go at once; what only waits for a word, a function or a copy does
// not want a turn. If that is not known of all streams, everything that waits counts.
bool TimeSharing::WantsTurn(const Session& session) const {
  if (session.HasKernelsAtDevice()) return true;
  if (session.held()) return false;
  if (!limited_ || !session.KnowsReady()) return session.HasWaiting();
  return session.share().queued[static_cast<size_t>(Engine::kCompute)].pieces != 0;
}

uint64_t TimeSharing::wake_at_ns() const {
  return limited_ ? arbiter_.wake_at_ns(clock_()) : UINT64_MAX;
}

arbiter::Prediction TimeSharing::Predict(const Share& share, arbiter::LaunchKey key) const {
  key.owner = static_cast<uint32_t>(share.session);
  key.allocation = static_cast<uint32_t>(share.allocation);
  return predictor_.Predict(key);
}

uint64_t TimeSharing::BeginMark(Share* share, const Tally& tally, uint64_t since_ns) {
  ++share->heads[static_cast<size_t>(tally.engine)];
  // All is measured as it is seen: work of an idle stream begins when the shortest work there is
  // would be seen to end.
  const uint64_t earliest_ns = tally.since_ns + round_trip_.ns();
  return meter(tally.engine)
      .Begin(share->session, share->allocation, tally.work.predicted_ns,
             std::max(since_ns, earliest_ns), tally.alone_ns);
}

// Only noted here: the meter learns it in FinishMarks, when all sessions have been polled, because
// the order of polling is not that of ending.
void TimeSharing::EndMark(Share* share, uint32_t stream, const Tally& tally, uint64_t metered,
                          uint64_t next_ns, uint64_t now_ns) {
  share->stall.WentOn(now_ns);
  --share->heads[static_cast<size_t>(tally.engine)];
  reached_.push_back({{metered, now_ns, next_ns},
                      share->session,
                      share->allocation,
                      share->session_id,
                      stream,
                      tally});
  // Pieces were counted only if the session was limited when it submitted them; the arbiter has no
  // others.
  if (tally.work.pieces != 0) {
    arbiter_.Finished(share->session, tally.engine, tally.work, 0, now_ns);
    share->stall.Ended(arbiter_.pieces_in_flight(share->session), now_ns);
  }
}

uint64_t TimeSharing::ChainBoundNs(const Share& share, uint64_t now_ns) const {
  return limited_ ? arbiter_.ChainBoundNs(share.session, now_ns) : arbiter::kUnbounded;
}

arbiter::Waits TimeSharing::waits(const Share& share) const {
  arbiter::Waits sum;
  const uint64_t now = clock_();
  for (const Engine engine : kAllEngines) {
    const arbiter::Waits its = arbiter_.waits(share.session, engine, now);
    sum.queue_ns += its.queue_ns;
    sum.throttled_ns += its.throttled_ns;
  }
  return sum;
}

}  // namespace gpuloom::executor
