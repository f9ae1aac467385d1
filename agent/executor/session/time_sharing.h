// SPDX-License-Identifier: Apache-2.0
// How the sessions of this executor share the device's time: passes to the deciding core
// (agent/arbiter/) what they have queued and what the device has done, and carries out what the
// core decides. docs/design/sharing-time.md.
//
// A session that is alone submits whatever it likes, and all of this costs it only a look at a
// flag. As soon as a second session wants the device, a bound applies to a single one, or other
// executors have turns, sessions are *limited*: what they send waits in their streams until
// GiveOrders lets it go, piece by piece.
//
// In each round of the loop: Update, then the sessions are read, each behind its BeforeRead, then GiveOrders, then they
// are polled, then Settle. Owned by the loop; ring thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "agent/arbiter/domain_arbiter.h"
#include "agent/arbiter/domain_members.h"
#include "agent/arbiter/launch_predictor.h"
#include "agent/arbiter/round_trip.h"
#include "agent/arbiter/sm_division.h"
#include "agent/arbiter/work_meter.h"
#include "agent/executor/session/share.h"
#include "agent/executor/stream/tally.h"
#include "agent/node/clock.h"
#include "proto/control/messages.h"

namespace gpuloom::executor {

class Session;
class Tracer;

class TimeSharing {
 public:
  // With `enforces` false every session always submits without limits; usage is measured all the
  // same.
  explicit TimeSharing(bool enforces = true, uint64_t (*clock)() = NowNs);

  Share Begin(const control::AddSession& order);
  // Call when nothing of the session is at the device any more.
  void End(Share* share);
  void Set(const control::SetShares& order);
  bool enforces() const { return enforces_; }
  uint64_t now_ns() const { return clock_(); }
  uint64_t (*clock() const)() { return clock_; }
  arbiter::Priority ClassOf(const Share& share) const {
    return arbiter_.priority(share.allocation);
  }
  // Grows with each Begin and Set.
  uint32_t changes() const { return changes_; }
  // This executor's turn among those of the device (turns.h): endless until the first order about
  // it.
  void SetTurn(arbiter::Priority lowest, uint64_t in_flight_ns);
  void EndTurn();
  bool turn_is_endless() const { return arbiter_.turn_is_endless(); }

  using Sessions = std::span<const std::unique_ptr<Session>>;
  void Update(Sessions sessions, uint64_t now_ns);
  // What comes after Update is read in the same round: of several sessions that come then, only the first is alone.
  void BeforeRead(Session* session, uint64_t now_ns) {
    if (may_meet_) LimitIfNotFirst(session, now_ns);
  }
  // Returns true if something was submitted.
  bool GiveOrders(Sessions sessions, uint64_t slice_ns);
  void Settle(Sessions sessions);
  bool limited() const { return limited_; }
  // Several sessions want the device, or did very recently.
  bool several() const { return several_; }
  // Returns true if the session has work for the kernels' engine that could go to the device, or has some there.
  bool WantsTurn(const Session& session) const;
  // When GiveOrders may do more without an event; UINT64_MAX: never.
  uint64_t wake_at_ns() const;

  // The next functions follow a command on its way to CUDA and back.
  arbiter::Prediction Predict(const Share& share, arbiter::LaunchKey key) const;
  // The given mark has become the stream's oldest; returns the meter's number for it.
  uint64_t BeginMark(Share* share, const Tally& tally, uint64_t since_ns);
  // The mark's work came to CUDA only at `at_ns`.
  void DelayMark(arbiter::Engine engine, uint64_t metered, uint64_t at_ns) {
    meter(engine).Delay(metered, at_ns + round_trip_.ns());
  }
  // The mark has been reached. What its work took is known when all sessions have been polled.
  // `stream`: the session's number of it. `next_ns`: since when the
  // stream has had more at the device; UINT64_MAX: it has not.
  void EndMark(Share* share, uint32_t stream, const Tally& tally, uint64_t metered,
               uint64_t next_ns, uint64_t now_ns);
  // The tracer is called with each mark that is reached and the estimated beginning of its work. It
  // outlives this; may be null.
  void SetTracer(Tracer* tracer) { tracer_ = tracer; }
  // The latency of a launch on an idle device, which is not charged.
  arbiter::RoundTrip& round_trip() { return round_trip_; }
  const arbiter::RoundTrip& round_trip() const { return round_trip_; }
  // How long launches that go to CUDA together may take.
  uint64_t ChainBoundNs(const Share& share, uint64_t now_ns) const;

  // Does not include how long the session was held, which the arbiter does not know.
  arbiter::Waits waits(const Share& share) const;
  const arbiter::LaunchPredictor& predictor() const { return predictor_; }

 private:
  struct Reached {
    arbiter::WorkMeter::Seen seen;
    arbiter::SessionId session;
    arbiter::AllocationId allocation;
    uint64_t session_id;
    uint32_t stream;
    Tally tally;
  };
  struct Ended {
    arbiter::SessionId session;
    arbiter::AllocationId allocation;
    bool limited;
    uint64_t at_ns;
  };

  // Whether the session computes on multiprocessors of those for which this was called before in this round.
  bool Meets(const Session& session);
  void LimitIfNotFirst(Session* session, uint64_t now_ns);
  void SetLimited(Share* share, bool limited, uint64_t now_ns);
  void FinishMarks();
  void FinishMark(const Reached& mark, const arbiter::Duration& took);
  void ForgetEnded(uint64_t now_ns);
  void NoteReady(Session* session, uint64_t now_ns);
  // Lets the session submit. Returns false if nothing could go.
  bool Order(Session* session, arbiter::Engine engine, Share::Room room, uint64_t now_ns,
             uint64_t slice_ns);
  // How long the session has waited for what has just been submitted.
  void NoteWait(Share* share, arbiter::Engine engine, uint64_t now_ns) const;
  bool SubmitToIdleStreams(Session* session, uint64_t now_ns, uint64_t slice_ns);
  arbiter::WorkMeter& meter(arbiter::Engine engine) { return meters_[static_cast<size_t>(engine)]; }

  const bool enforces_;
  uint64_t (*const clock_)();
  Tracer* tracer_ = nullptr;
  arbiter::DomainArbiter arbiter_;
  arbiter::DomainMembers members_{&arbiter_};
  arbiter::LaunchPredictor predictor_;
  std::array<arbiter::WorkMeter, arbiter::kEngines> meters_;
  arbiter::RoundTrip round_trip_;
  std::vector<Session*> by_session_;
  std::vector<Reached> reached_;                // in this round
  std::vector<arbiter::WorkMeter::Seen> seen_;  // used by FinishMarks
  uint64_t round_ns_ = 0;                       // when this round began
  uint64_t looked_ns_ = 0;  // the one before: what is reached now was not reached then
  std::deque<Ended> ended_;
  uint64_t forgot_ns_ = 0;      // when who owes nothing was last looked for
  bool limited_ = false;        // some session is limited
  bool may_meet_ = false;       // no session was when this round began, and there are several
  arbiter::SmGroups used_ = 0;  // by those that want the device in this round
  bool several_ = false;
  uint64_t several_ns_ = 0;  // when several last wanted the device
  uint32_t changes_ = 0;
  uint64_t settled_ns_ = 0;
};

}  // namespace gpuloom::executor
