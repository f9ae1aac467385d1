// SPDX-License-Identifier: Apache-2.0
// Who has used one engine of a device for how long, known only from when work was submitted and when it was seen to be
// done. When it began cannot be observed: a kernel that waits for another tenant's looks like one that runs. So its
// beginning is estimated, and each moment is then divided as BusyMeter does.
//
//   began, at the earliest     when it was at the head of its stream
//   began, at the latest       when the last work of other sessions ended that was there before it: the device begins
//                              work in the order in which it comes
//   in between                 as long before its end as was predicted, if that was measured alone
//
// Of two pieces that came within kTogetherNs of each other, the one that ended first counts as having been there first:
// the device may have begun either.
//
// What was not measured alone is a bound or a guess, and says nothing that the latest does not say: kernels that fill the
// device run one after the other. A guess of a millisecond would charge a program's first kernels for others' work.
//
// So a wrong prediction moves a charge by at most what others had in flight before, which the arbiter bounds. The work
// that has been there longest counts as running, so that all charges add up to the time in which there was any work.
//
// When completions were not checked for long, because the thread was in the driver, all work that ended meanwhile is
// seen at once, and late. The times at which it ended are then estimated, too: one piece after the other, each as long
// as was predicted.
//
// At each moment the engine's time is divided among the allocations whose work runs, however many sessions and streams
// they have. An allocation's part is divided among its sessions in proportion to the time in which their work ran.
//
// A value, owned by TimeSharing; the executor's ring thread only; one meter for each engine. Nothing fails. Times are
// nanoseconds of any clock that never goes back. Ending a piece and settling each walk once over what is at the heads
// of streams, whatever tenants have there; memory is allocated only when more is there than ever before.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agent/arbiter/busy_meter.h"
#include "agent/arbiter/policy_tree.h"
#include "agent/arbiter/work.h"

namespace gpuloom::arbiter {

class WorkMeter {
 public:
  // The number of a piece of work that is at the head of its stream: higher than those of earlier pieces.
  using Piece = uint64_t;

  // `at_ns` may be earlier than the last Settle; the piece then counts from there. `predicted_ns`: how long it takes by
  // itself; `alone_ns`: how much of that is predicted from what was measured alone.
  Piece Begin(SessionId session, AllocationId allocation, uint64_t predicted_ns, uint64_t at_ns,
              uint64_t alone_ns = UINT64_MAX);

  // The piece was only submitted at `at_ns`, because it had to wait for a thread.
  void Delay(Piece piece, uint64_t at_ns);
  // The piece was seen to have ended right after it had.
  Duration End(Piece piece, uint64_t at_ns);

  struct Seen {
    Piece piece;
    uint64_t at_ns;  // when it was seen to have ended
    // Since when the device has had more of the same stream, of which the meter does not know yet; UINT64_MAX: it has not.
    uint64_t next_ns;
    // Written by End: how long it took, and how much of that came after the last check before a
    // long pause.
    Duration took = {};
    uint64_t left_ns = 0;
  };
  // Pieces that have been seen to have ended since the last call, in the order in which they came. None had at `looked_ns`
  // (0: not known). Where that is longer ago than kSeldomNs, the time since then is divided among them in proportion to
  // their predictions. If they were all that the device had, none is charged more than was predicted: the device was idle
  // for the rest, as nobody could submit more.
  void End(std::span<Seen> seen, uint64_t looked_ns);

  // Call at least every millisecond while there is work. A charge is settled when nothing can change it
  // any more, and kLatestNs later in any case.
  void Settle(uint64_t now_ns);
  // What the session was charged since the last Take.
  uint64_t Take(SessionId session);

  uint64_t busy_ns() const { return allocations_.busy_ns(); }
  bool idle() const { return live_.empty(); }

  // Work that has run this long since it could begin, with nothing before it, is charged while it runs.
  static constexpr uint64_t kLongNs = 1'000'000;
  // Longer than it takes from the call that submits a kernel until the device begins it. Orders of other sessions
  // follow right behind the end of a kernel, which is also what lets the next kernel of its stream go. On an H200 with
  // kernels of 50 µs beside ones of 5 ms, every second long one ran before the short one that had come to the head of
  // its stream 1 to 5 µs earlier.
  static constexpr uint64_t kTogetherNs = 20'000;
  static constexpr uint64_t kLatestNs = 20'000'000;
  // Longer than the loop needs for a round with a few sessions.
  static constexpr uint64_t kSeldomNs = 100'000;

 private:
  struct Work {
    Piece number;
    SessionId session;
    AllocationId allocation;
    uint64_t predicted_ns;
    uint64_t alone_ns;
    uint64_t since_ns;
    uint64_t others_until_ns = 0;  // the latest end of others' work that was there before
    bool running = false;          // the meters know it, with a beginning that is settled
  };
  struct Charged {
    AllocationId allocation{};
    uint64_t ns = 0;
    uint64_t ended_ns = 0;  // the last of its work
    bool listed = false;
  };

  using Works = std::vector<Work>;

  Works::iterator Find(Piece piece);
  void Run(Work* work, uint64_t since_ns);
  uint64_t PassTogether(Works::iterator found, uint64_t at_ns);
  void EndAsSeen(std::span<Seen> seen, uint64_t looked_ns);
  static uint64_t LeftNs(const Work& work, uint64_t ran_ns);
  bool HadMore(std::span<const Seen> seen, uint64_t until_ns) const;
  // `after_ns`: the end of the piece before.
  Duration EndEstimated(const Seen& seen, uint64_t looked_ns, uint64_t after_ns, uint64_t end_ns);
  // Takes it out of live_. It ran from `began_ns`, or from where its beginning is settled.
  void Remove(Works::iterator found, uint64_t began_ns, uint64_t at_ns);
  Work* LongFirst(Work* work, size_t others, uint64_t now_ns);
  void Divide();

  BusyMeter allocations_;
  BusyMeter sessions_;
  Works live_;  // in the order in which it came
  Piece pieces_ = 0;
  uint64_t settled_ns_ = 0;
  std::vector<Charged> charged_;      // by session
  std::vector<SessionId> listed_;     // sessions that may have something to be charged
  std::vector<uint64_t> session_ns_;  // used by Divide
};

}  // namespace gpuloom::arbiter
