// SPDX-License-Identifier: Apache-2.0
// Driver calls that complete only when the device is idle, and hold the context's lock until then, so that every
// other call of the process waits too (measured; docs/design/module-loading.md): making a library usable (its first
// kernel or variable), unloading one, unpinning host memory. And those that return at once, but let nothing begin at the
// device before all that runs has ended: loading any further kernel. Moving them to a worker is not enough. They are made
// one at a time, on a worker, while no session's work is at the device and nothing new is submitted: in a quiet moment.
//
// Need: a tenant is waiting. A quiet moment comes even if the device is never idle by itself,
// because after kPatienceNs submissions are held back:
//
//   the caller's own work is in the way   holds its own tenant only, for up to kOwnHoldNs, then not for as long
//   others' work is in the way            holds all sessions until the device is idle; each for at most
//                                         Patience(its own commands), then not for as long
//
// A hold that did not help is given up once every session has been held once, and the next starts after
// a pause that doubles up to kLongestGivenUpNs. While what has outlasted the hold still runs, another would not help
// either, and the pause doubles on, up to kLongestBesideSameNs: a kernel that never ends costs its neighbours 50 ms in
// 8 s, and one that is followed by others like it 50 ms a second. A quiet moment serves all waiting callers, and stays open a little longer, because a starting
// program needs one library after another. A long moment is followed by an equally long time without
// one, so that a tenant that keeps loading takes no more than half of the device from the others.
//
// Retire: for work that no session waits for. It runs when the device has been idle for a while, and in a moment of its
// own where the device is never idle: what it is to return, pinned memory and addresses, somebody needs in the end. At
// process exit the driver cleans up what is left.
//
// Owned by the loop; ring thread only. Times are nanoseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <vector>

namespace gpuloom::executor {

class WorkPool;

class Quiet {
 public:
  // A session, as seen in one round of the loop. Both pointers are identities, never dereferenced.
  struct Party {
    const void* owner;
    const void* tenant;   // the sessions of a tenant are held for one another
    bool at_device;       // some of its work is at CUDA and not known to be complete
    uint64_t command_ns;  // recent duration of the commands of its slowest stream
    // Names the oldest piece of its work at the device: while it is the same, that piece is there. UINT64_MAX: unknown.
    uint64_t oldest_work = UINT64_MAX;
    bool held = false;  // set by Tick: nothing of it may be submitted to CUDA now
  };

  // `pool` is used for nothing else: a call queued behind other work would hold up all sessions.
  explicit Quiet(WorkPool* pool) : pool_(pool) {}

  // `work` runs on a worker and owns everything it uses; `done` then runs on the ring thread, and
  // may be empty.
  void Need(const void* owner, std::function<void()> work, std::function<void()> done);
  // The same for what returns at once. Its caller's kernels may wait for what the caller does next, which nobody can know:
  // so if they have been in the way for kPatienceNs, and there is no other tenant, whom it could keep waiting, it is done
  // beside them, as in a program that has the device to itself.
  void NeedOrBesideOwn(const void* owner, std::function<void()> work, std::function<void()> done);
  // Drops the work that `owner` needs and that has not begun; returns the number of pieces dropped.
  uint32_t Drop(const void* owner);
  void Retire(std::function<void()> work, std::function<void()> done);
  // The same for what nobody needs: it waits for an idle device as long as that takes.
  void WhenIdle(std::function<void()> work, std::function<void()> done);
  // Call when something waits for retired work, to run it soon.
  void ExpediteRetired();

  // Drops what is left; at process exit the driver cleans it up.
  void Close();

  // Call in every round of the loop unless Idle. `others_at_device`: work that belongs to no session
  // is at the device. `idle_ns`: how long the loop has been idle. Returns true if a piece was begun.
  bool Tick(uint64_t now_ns, std::span<Party> parties, bool others_at_device, uint64_t idle_ns);
  // Nothing to do, and no session held.
  bool Idle() const { return empty() && !Holding() && !holds_own_ && !ended_; }
  // Submissions of at least one session are held back.
  bool Holding() const { return running_ || held_since_ns_ != 0; }
  bool Running() const { return running_; }
  bool empty() const { return needed_.empty() && retired_.empty(); }
  bool AnyNeeded() const { return !needed_.empty() || expedited_ != 0; }

  // Long enough for a driver call to return and for most launches to find a gap, short compared
  // with the start of a program.
  static constexpr uint64_t kPatienceNs = 1'000'000;
  // Time for a tenant to request its next kernel, including handling the previous reply.
  static constexpr uint64_t kLingerNs = 500'000;
  // Longest duration of a quiet moment, once a caller was served.
  static constexpr uint64_t kLongestHoldNs = 50'000'000;
  static constexpr uint64_t kLongestPauseNs = 50'000'000;
  // Longest hold of the caller's own tenant, when its work is in the way.
  static constexpr uint64_t kOwnHoldNs = 1'000'000'000;
  // After holds that did not help; the latter while the same is in the way.
  static constexpr uint64_t kLongestGivenUpNs = 1'000'000'000;
  static constexpr uint64_t kLongestBesideSameNs = 8'000'000'000;
  // Retired work waits until the device has been idle for this long, but not longer than that.
  static constexpr uint64_t kQuietNs = 1'000'000;
  static constexpr uint64_t kLongestRetiredNs = 1'000'000'000;

  // How long a session may be kept from submitting at a time for others' sake. Work at the device
  // drains in the time of a few of the session's commands; sessions with long commands can wait longer.
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
    bool beside_own = false;  // NeedOrBesideOwn
    bool has_time = false;    // WhenIdle
    uint64_t since_ns = 0;    // set by the first Tick that sees it
  };
  // A session's work at the device.
  struct Obstacle {
    const void* owner;
    uint64_t work;
    bool operator==(const Obstacle&) const = default;
  };
  // Notes since when each piece waits, which the Tick that sees it first does.
  static void Stamp(std::deque<Piece>* pieces, uint64_t now_ns);
  static std::vector<Obstacle> ObstaclesOf(std::span<const Party> parties);
  // Returns true if any of what outlasted the last hold still runs.
  bool StillObstructed(std::span<const Party> parties) const;
  void GiveUp(uint64_t now_ns, std::span<const Party> parties);
  void Begin(std::deque<Piece>* pieces, uint64_t now_ns);
  // Whether the first piece may begin although its caller's work is at the device.
  bool MayBeginBesideOwn(uint64_t now_ns, std::span<const Party> parties) const;
  // Returns true if a caller waits whose own tenant has nothing at the device.
  bool CanHold(uint64_t now_ns, std::span<const Party> parties) const;
  void UpdateHold(uint64_t now_ns, std::span<const Party> parties);
  void HoldParties(uint64_t now_ns, std::span<Party> parties);

  WorkPool* pool_;
  std::deque<Piece> needed_;
  std::deque<Piece> retired_;
  size_t expedited_ = 0;  // how many of the first pieces in retired_ something waits for
  uint64_t expedited_since_ns_ = 0;
  bool closed_ = false;
  bool running_ = false;
  bool ended_ = false;      // a piece has ended since the last Tick
  bool holds_own_ = false;  // a caller's own tenant is held
  // The quiet moment that a caller's wait has opened.
  uint64_t held_since_ns_ = 0;    // 0: none
  bool served_ = false;           // a caller was served in this moment
  uint64_t linger_until_ns_ = 0;  // how long this moment stays open
  uint64_t pause_until_ns_ = 0;   // no caller is served before this
  uint64_t next_hold_ns_ = 0;     // no new hold begins before this
  uint64_t given_up_ns_ = 0;      // the length of the last pause after a hold that did not help
  std::vector<Obstacle>
      obstacles_;  // when this hold began; after one that did not help: what outlasted it
  uint64_t next_hold_beside_same_ns_ = 0;  // no new hold begins before this while any of those runs
};

}  // namespace gpuloom::executor
