// Calls that real drivers answer only when the device is idle, holding the context's lock
// meanwhile, so that every other call of the process waits with them (measured;
// docs/design/module-loading.md): making a library usable (its first kernel or variable), unloading one,
// unpinning host memory. A worker thread does not help. They are made one at a time, on a worker,
// while nothing of anybody is at the device and nothing new is submitted.
//
// Need: a tenant waits for it. After kPatienceNs submissions are held back, so that the moment
// comes even when the device is never idle by itself. The moment then serves everybody who waits, and
// stays open for a little longer, because a program that starts needs one library after the
// other. A long moment is followed by as long a time without one, so that who loads
// without end takes no more than half of the device from the others.
//
// Bury: nobody waits; it is done when the device has been idle for a while. At the end of the
// process the driver does what is left.
//
// Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "agent/executor/work_pool.h"

namespace gpuloom::executor {

class Quiet {
 public:
  // `pool` is for this alone: work that had to queue behind another's would hold up everybody.
  explicit Quiet(WorkPool* pool) : pool_(pool) {}

  // `work` runs on a worker and owns what it needs; `done`, on the ring thread after it, may be
  // empty.
  void Need(const void* owner, std::function<void()> work, std::function<void()> done);
  // Forgets what `owner` needs and what has not been begun; returns how many pieces that was.
  uint32_t Drop(const void* owner);
  void Bury(std::function<void()> work, std::function<void()> done);
  // Somebody waits for something buried.
  void HurryBuried();

  // Drops what is left; at the end of the process the driver does it.
  void Close();

  // To be called in every round of the loop. `at_device`: some work is at CUDA and not known to be
  // done. `idle_ns`: how long nothing has happened. True when a piece was begun.
  bool Tick(uint64_t now_ns, bool at_device, uint64_t idle_ns);
  // True: nothing may be handed to CUDA now.
  bool Holding() const { return running_ || held_since_ns_ != 0; }
  bool Running() const { return running_; }
  bool empty() const { return needed_.empty() && buried_.empty(); }
  bool AnyNeeded() const { return !needed_.empty(); }

  // Long enough for a driver's call to return and for most launches to find their gap, short beside
  // what starting a program takes.
  static constexpr uint64_t kPatienceNs = 1'000'000;
  // What a tenant takes to ask for its next kernel, with a look at what it got.
  static constexpr uint64_t kLingerNs = 500'000;
  // A moment ends after so long at the latest, once somebody was served.
  static constexpr uint64_t kLongestHoldNs = 50'000'000;
  static constexpr uint64_t kLongestPauseNs = 50'000'000;
  // What nobody waits for is left until the device has been idle for so long.
  static constexpr uint64_t kQuietNs = 1'000'000;

 private:
  struct Piece {
    const void* owner;
    std::function<void()> work;
    std::function<void()> done;
    uint64_t since_ns = 0;  // set by the first Tick that sees it
  };
  void Begin(std::deque<Piece>* pieces, uint64_t now_ns);
  void LookAtHold(uint64_t now_ns);

  WorkPool* pool_;
  std::deque<Piece> needed_;
  std::deque<Piece> buried_;
  bool closed_ = false;
  bool running_ = false;
  bool ended_ = false;  // a piece, since the last Tick
  // A moment that somebody's patience has opened.
  uint64_t held_since_ns_ = 0;    // 0: none
  bool served_ = false;           // somebody, in this moment
  uint64_t linger_until_ns_ = 0;  // of this moment
  uint64_t pause_until_ns_ = 0;   // no new one before
};

}  // namespace gpuloom::executor
