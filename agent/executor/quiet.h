// Calls that real drivers answer only when the device is idle, holding the context's lock
// meanwhile, so that every other call of the process waits with them (measured;
// docs/design/module-loading.md): making a library usable (its first kernel or variable), unloading one,
// unpinning host memory. A worker thread does not help. They are made one at a time, on a worker,
// while nothing of anybody is at the device and nothing new is submitted.
//
// Need: a tenant waits for it. After kPatienceNs submissions are held back, so that the moment
// comes even when the device is never idle by itself. Bury: nobody waits; it is done when the
// device has been idle for a while. At the end of the process the driver does what is left.
//
// Ring thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>

#include "agent/executor/device.h"
#include "agent/executor/work_pool.h"

namespace gpuloom::executor {

// Finds out, in at most a few hundred milliseconds, whether this driver's loads wait for the
// device: loads a tiny image while a host function keeps a stream busy. True when it cannot be
// found out.
bool LoadsWaitForDevice(Device* device);

class Quiet {
 public:
  // With `loads_wait` false, Need is made at once.
  Quiet(WorkPool* pool, bool loads_wait) : pool_(pool), loads_wait_(loads_wait) {}

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
  bool Holding() const { return holding_; }
  bool Running() const { return running_; }
  bool empty() const { return needed_.empty() && buried_.empty(); }
  bool AnyNeeded() const { return !needed_.empty(); }

 private:
  struct Piece {
    const void* owner;
    std::function<void()> work;
    std::function<void()> done;
    uint64_t since_ns = 0;  // set by the first Tick that sees it
  };
  void Begin(std::deque<Piece>* pieces);

  WorkPool* pool_;
  const bool loads_wait_;
  std::deque<Piece> needed_;
  std::deque<Piece> buried_;
  bool closed_ = false;
  bool running_ = false;
  bool holding_ = false;
};

}  // namespace gpuloom::executor
