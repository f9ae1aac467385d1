// SPDX-License-Identifier: Apache-2.0
#include "agent/executor/device/quiet.h"

#include <algorithm>
#include <chrono>

#include "agent/executor/process/log.h"
#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {
namespace {

double Milliseconds(uint64_t ns) { return static_cast<double>(ns) / 1e6; }

const Quiet::Party* Find(std::span<const Quiet::Party> parties, const void* owner) {
  const auto found = std::find_if(parties.begin(), parties.end(),
                                  [owner](const auto& party) { return party.owner == owner; });
  return found == parties.end() ? nullptr : &*found;
}

// Whether the caller's own allocation is in its way, by any of its sessions.
bool TenantIsAtDevice(std::span<const Quiet::Party> parties, const void* owner) {
  const Quiet::Party* caller = Find(parties, owner);
  return caller != nullptr &&
         std::any_of(parties.begin(), parties.end(), [caller](const Quiet::Party& party) {
           return party.at_device && party.tenant == caller->tenant;
         });
}

// True in every other interval of that length.
bool InTurn(uint64_t since_ns, uint64_t turn_ns) { return since_ns % (2 * turn_ns) < turn_ns; }

}  // namespace

// The wait is counted from the next Tick, which knows the time.
void Quiet::Need(const void* owner, std::function<void()> work, std::function<void()> done) {
  needed_.push_back({owner, std::move(work), std::move(done)});
}

void Quiet::NeedOrBesideOwn(const void* owner, std::function<void()> work,
                            std::function<void()> done) {
  needed_.push_back({owner, std::move(work), std::move(done), /*beside_own=*/true});
}

uint32_t Quiet::Drop(const void* owner) {
  return static_cast<uint32_t>(
      std::erase_if(needed_, [&](const Piece& piece) { return piece.owner == owner; }));
}

void Quiet::Close() {
  closed_ = true;
  expedited_ = 0;
  std::deque<Piece> pieces;
  pieces.swap(needed_);
  pieces.clear();  // may retire, which is refused now
  pieces.swap(retired_);
}

void Quiet::Retire(std::function<void()> work, std::function<void()> done) {
  if (closed_) return;
  retired_.push_back({nullptr, std::move(work), std::move(done)});
}

void Quiet::WhenIdle(std::function<void()> work, std::function<void()> done) {
  if (closed_) return;
  retired_.push_back(
      {nullptr, std::move(work), std::move(done), /*beside_own=*/false, /*has_time=*/true});
}

void Quiet::ExpediteRetired() {
  if (expedited_ == 0) expedited_since_ns_ = 0;
  // All that is there now: whoever hurries does not know which piece it waits for.
  expedited_ = retired_.size();
}

bool Quiet::MayBeginBesideOwn(uint64_t now_ns, std::span<const Party> parties) const {
  if (needed_.empty()) return false;
  const Piece& piece = needed_.front();
  if (!piece.beside_own || now_ns - piece.since_ns < kPatienceNs) return false;
  const Party* caller = Find(parties, piece.owner);
  return caller != nullptr && std::all_of(parties.begin(), parties.end(), [&](const Party& party) {
           return party.tenant == caller->tenant;
         });
}

bool Quiet::CanHold(uint64_t now_ns, std::span<const Party> parties) const {
  if (expedited_ != 0 && now_ns - expedited_since_ns_ >= kPatienceNs) return true;
  // A short list: a session has at most one request for each of its reply slots.
  const void* last = nullptr;
  for (const Piece& piece : needed_) {
    if (now_ns - piece.since_ns < kPatienceNs) return false;  // nor have those behind it
    if (piece.owner == last) continue;
    last = piece.owner;
    if (!TenantIsAtDevice(parties, piece.owner)) return true;
  }
  return false;
}

// Opens and ends the moment in which all sessions' submissions are held back. It ends well when
// somebody was served and nobody waits any more, or after kLongestHoldNs. It is given up when
// nobody could be served and every session has been held for as long as its patience allows.
void Quiet::UpdateHold(uint64_t now_ns, std::span<const Party> parties) {
  if (held_since_ns_ == 0) {
    if (!AnyNeeded() || now_ns < next_hold_ns_ || !CanHold(now_ns, parties)) return;
    const bool beside_same = StillObstructed(parties);
    if (beside_same && now_ns < next_hold_beside_same_ns_) return;
    if (!beside_same) given_up_ns_ = std::min(given_up_ns_, kLongestGivenUpNs);
    held_since_ns_ = now_ns;
    next_hold_beside_same_ns_ = 0;
    obstacles_ = ObstaclesOf(parties);
    served_ = false;
    linger_until_ns_ = 0;
    return;
  }
  if (running_) return;
  const uint64_t held_ns = now_ns - held_since_ns_;
  if (served_) {
    const bool nobody_waits = !AnyNeeded() && now_ns >= linger_until_ns_;
    if (!nobody_waits && held_ns < kLongestHoldNs) return;
    // The pause is as long as the moment was: callers that load without end get half of the time.
    pause_until_ns_ = next_hold_ns_ = now_ns + std::min(held_ns, kLongestPauseNs);
    given_up_ns_ = 0;
  } else if (AnyNeeded()) {
    uint64_t longest_ns = kLeastPatientNs;
    for (const Party& party : parties)
      longest_ns = std::max(longest_ns, Patience(party.command_ns));
    if (held_ns < longest_ns && CanHold(now_ns, parties)) return;
    GiveUp(now_ns, parties);
  }
  held_since_ns_ = 0;
}

// A kernel that does not end makes every hold useless: the pauses between holds double. What has not
// ended although nothing was added for as long as its session can wait is in the way; sessions that
// went on meanwhile have other work at the device by now.
void Quiet::GiveUp(uint64_t now_ns, std::span<const Party> parties) {
  const uint64_t held_ns = now_ns - held_since_ns_;
  given_up_ns_ = std::min(std::max(held_ns, 2 * given_up_ns_), kLongestBesideSameNs);
  next_hold_ns_ = now_ns + std::max(std::min(given_up_ns_, kLongestGivenUpNs), held_ns);
  next_hold_beside_same_ns_ = now_ns + std::max(given_up_ns_, held_ns);
  const std::vector<Obstacle> now = ObstaclesOf(parties);
  std::erase_if(obstacles_, [&now](const Obstacle& one) {
    return std::find(now.begin(), now.end(), one) == now.end();
  });
}

std::vector<Quiet::Obstacle> Quiet::ObstaclesOf(std::span<const Party> parties) {
  std::vector<Obstacle> obstacles;
  for (const Party& party : parties) {
    if (party.at_device && party.oldest_work != UINT64_MAX) {
      obstacles.push_back({party.owner, party.oldest_work});
    }
  }
  return obstacles;
}

bool Quiet::StillObstructed(std::span<const Party> parties) const {
  return std::any_of(obstacles_.begin(), obstacles_.end(), [parties](const Obstacle& one) {
    const Party* party = Find(parties, one.owner);
    return party != nullptr && party->at_device && party->oldest_work == one.work;
  });
}

// Decides for each session whether it may submit until the next Tick. While a piece runs none may,
// whatever its patience: its calls would wait for the context's lock.
void Quiet::HoldParties(uint64_t now_ns, std::span<Party> parties) {
  holds_own_ = false;
  for (Party& party : parties) {
    party.held = running_ || (held_since_ns_ != 0 &&
                              InTurn(now_ns - held_since_ns_, Patience(party.command_ns)));
  }
  if (now_ns < next_hold_ns_) return;
  const void* last = nullptr;
  for (const Piece& piece : needed_) {
    const uint64_t waited_ns = now_ns - piece.since_ns;
    // Those behind it have not waited longer.
    if (waited_ns < kPatienceNs) return;
    if (piece.owner == last) continue;
    last = piece.owner;
    // Its own work is in the way, so only its own sessions are held: the others could not help.
    if (!InTurn(waited_ns, kOwnHoldNs) || !TenantIsAtDevice(parties, piece.owner)) continue;
    const Party* caller = Find(parties, piece.owner);
    holds_own_ = true;
    for (Party& party : parties) party.held |= party.tenant == caller->tenant;
  }
}

// New ones are at the end of the list.
void Quiet::Stamp(std::deque<Piece>* pieces, uint64_t now_ns) {
  for (auto piece = pieces->rbegin(); piece != pieces->rend() && piece->since_ns == 0; ++piece) {
    piece->since_ns = now_ns;
  }
}

bool Quiet::Tick(uint64_t now_ns, std::span<Party> parties, bool others_at_device,
                 uint64_t idle_ns) {
  // A piece has run since the last Tick. The moment stays open for whoever needs the next one.
  if (ended_) {
    ended_ = false;
    served_ = true;
    linger_until_ns_ = now_ns + kLingerNs;
  }
  Stamp(&needed_, now_ns);
  Stamp(&retired_, now_ns);
  const auto oldest = std::find_if(retired_.begin(), retired_.end(),
                                   [](const Piece& piece) { return !piece.has_time; });
  if (expedited_ == 0 && oldest != retired_.end() &&
      now_ns - oldest->since_ns >= kLongestRetiredNs) {
    ExpediteRetired();
  }
  if (expedited_ != 0 && expedited_since_ns_ == 0) expedited_since_ns_ = now_ns;
  UpdateHold(now_ns, parties);
  const bool at_device =
      others_at_device || std::any_of(parties.begin(), parties.end(),
                                      [](const Party& party) { return party.at_device; });
  if (!running_ && !at_device) {
    // After a long quiet moment, other work goes first.
    const bool may_begin = held_since_ns_ != 0 || now_ns >= pause_until_ns_;
    if (!needed_.empty() && may_begin) {
      Begin(&needed_, now_ns);
    } else if (!retired_.empty() &&
               ((expedited_ != 0 && may_begin) || (!AnyNeeded() && idle_ns >= kQuietNs))) {
      expedited_ -= expedited_ != 0;
      Begin(&retired_, now_ns);
    }
  }
  if (!running_ && !others_at_device && MayBeginBesideOwn(now_ns, parties)) {
    Begin(&needed_, now_ns);
  }
  HoldParties(now_ns, parties);
  return running_;
}

void Quiet::Begin(std::deque<Piece>* pieces, uint64_t now_ns) {
  running_ = true;
  Piece piece = std::move(pieces->front());
  pieces->pop_front();
  const uint64_t waited_ns = piece.since_ns == 0 ? 0 : now_ns - piece.since_ns;
  const auto begun = std::chrono::steady_clock::now();
  pool_->Post(std::move(piece.work), [this, waited_ns, begun, done = std::move(piece.done)] {
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - begun;
    Log(LogLevel::kDebug, "quiet: waited %.2f ms, took %.2f ms", Milliseconds(waited_ns),
        Milliseconds(static_cast<uint64_t>(took.count())));
    running_ = false;
    ended_ = true;
    if (done) done();
  });
}

}  // namespace gpuloom::executor
