// SPDX-License-Identifier: Apache-2.0
// Calls that real drivers answer only when the device is idle, holding the context's lock
// meanwhile, so that every other call of the process waits with them (measured;
// docs/design/module-loading.md): making a library usable (its first kernel or variable), unloading one,
// unpinning host memory. A worker thread does not help. They are made one at a time, on a worker,
// while nothing of anybody is at the device and nothing new is submitted.
//
// Need: a tenant waits for it. The moment comes even when the device is never idle by itself, because after
// kPatienceNs submissions are held back:
//
//   the caller's own work is in the way   its own tenant's only, for kOwnHoldNs at a time and as long not
//   others' work is in the way           everybody's, until the device is idle; nobody's longer than
//                                        Patience(its own commands), and as long not
//
// A hold that has not helped is given up when everybody has been held once, and the next comes after
// a pause that doubles up to kLongestGivenUpNs: a kernel that never ends costs the neighbours 50 ms a second.
// A moment that has come serves everybody who waits, and stays open for a little longer, because a
// program that starts needs one library after the other. A long moment is followed by as long a time
// without one, so that who loads without end takes no more than half of the device from the others.
//
// Retire: nobody waits; it is done when the device has been idle for a while. At the end of the
// process the driver does what is left.
//
// Ring thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>

#include "agent/executor/session/work_pool.h"

namespace gpuloom::executor {

class Quiet {
 public:
  // A session, as a round finds it. Both pointers are identities, never dereferenced.
  struct Party {
    const void* owner;
    const void* tenant;   // whose sessions are asked to make way for one another
    bool at_device;       // some of its work is at CUDA and not known to be done
    uint64_t command_ns;  // what the commands of its slowest stream took lately
    bool held = false;    // by Tick: nothing of it may be handed to CUDA now
  };

  // `pool` is for this alone: work that had to queue behind another's would hold up everybody.
  explicit Quiet(WorkPool* pool) : pool_(pool) {}

  // `work` runs on a worker and owns what it needs; `done`, on the ring thread after it, may be
  // empty.
  void Need(const void* owner, std::function<void()> work, std::function<void()> done);
  // Forgets what `owner` needs and what has not been begun; returns how many pieces that was.
  uint32_t Drop(const void* owner);
  void Retire(std::function<void()> work, std::function<void()> done);
  // Somebody waits for something retired.
  void HurryRetired();

  // Drops what is left; at the end of the process the driver does it.
  void Close();

  // To be called in every round of the loop that is not Idle. `others_at_device`: something that is no
  // session's. `idle_ns`: how long nothing has happened. True when a piece was begun.
  bool Tick(uint64_t now_ns, std::span<Party> parties, bool others_at_device, uint64_t idle_ns);
  // Nothing to do, and nobody held.
  bool Idle() const { return empty() && !Holding() && !holds_own_ && !ended_; }
  // Submissions are held back: somebody's at least.
  bool Holding() const { return running_ || held_since_ns_ != 0; }
  bool Running() const { return running_; }
  bool empty() const { return needed_.empty() && retired_.empty(); }
  bool AnyNeeded() const { return !needed_.empty() || hurried_ != 0; }

  // Long enough for a driver's call to return and for most launches to find their gap, short beside
  // what starting a program takes.
  static constexpr uint64_t kPatienceNs = 1'000'000;
  // What a tenant takes to ask for its next kernel, with a look at what it got.
  static constexpr uint64_t kLingerNs = 500'000;
  // A moment ends after so long at the latest, once somebody was served.
  static constexpr uint64_t kLongestHoldNs = 50'000'000;
  static constexpr uint64_t kLongestPauseNs = 50'000'000;
  // Who is in the way itself waits for itself.
  static constexpr uint64_t kOwnHoldNs = 1'000'000'000;
  // Behind holds that did not help.
  static constexpr uint64_t kLongestGivenUpNs = 1'000'000'000;
  // What nobody waits for is left until the device has been idle for so long.
  static constexpr uint64_t kQuietNs = 1'000'000;

  // How long others' wishes may keep a session from submitting at a time. What is at the device drains in
  // as long as a few of the session's commands take; who computes in long pieces can wait longer.
  static constexpr uint64_t Patience(uint64_t command_ns) {
    return std::clamp<uint64_t>(4 * std::min(command_ns, kMostPatientNs), kLeastPatientNs,
                                kMostPatientNs);
  }
  static constexpr uint64_t kLeastPatientNs = 50'000'000;
  static constexpr uint64_t kMostPatientNs = 2'000'000'000;

 private:
  struct Piece {
    const void* owner;
    std::function<void()> work;
    std::function<void()> done;
    uint64_t since_ns = 0;  // set by the first Tick that sees it
  };
  void Begin(std::deque<Piece>* pieces, uint64_t now_ns);
  // Somebody waits whose own tenant has nothing at the device.
  bool AnyoneMayHold(uint64_t now_ns, std::span<const Party> parties) const;
  void LookAtHold(uint64_t now_ns, std::span<const Party> parties);
  void HoldParties(uint64_t now_ns, std::span<Party> parties);

  WorkPool* pool_;
  std::deque<Piece> needed_;
  std::deque<Piece> retired_;
  size_t hurried_ = 0;  // the first of retired_, which somebody waits for
  uint64_t hurried_since_ns_ = 0;
  bool closed_ = false;
  bool running_ = false;
  bool ended_ = false;      // a piece, since the last Tick
  bool holds_own_ = false;  // some caller is held for its own work
  // A moment that somebody's patience has opened.
  uint64_t held_since_ns_ = 0;    // 0: none
  bool served_ = false;           // somebody, in this moment
  uint64_t linger_until_ns_ = 0;  // of this moment
  uint64_t pause_until_ns_ = 0;   // nobody is served before
  uint64_t next_hold_ns_ = 0;     // no new one before
  uint64_t given_up_ns_ = 0;      // the last pause behind a hold that did not help
};

}  // namespace gpuloom::executor
