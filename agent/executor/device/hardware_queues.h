// SPDX-License-Identifier: Apache-2.0
// Which streams may hold one of the context's hardware queues (CUDA_DEVICE_MAX_CONNECTIONS). All streams of all sessions
// share them. A stream holds one while something waits at the device behind a kernel, a graph or another stream's work
// that is not done, and as many as it has heads while a graph does (graph_width.h); a kernel, a graph or a copy with
// nothing unfinished before it, and an event, hold none, however long they take. Once the queues are held, nothing of
// anybody's reaches the device, so what would hold one too many stays with the executor until what it waits for is done:
// that costs it a round trip, and no program can be stopped by it, because it could not run before in any case
// (docs/design/start-up.md#hardware-queues has the measurements).
//
//   MayTake(mine, queues) → Take(&mine, queues) → Give(&mine, queues)
//
// where `mine` is what the streams of one allocation hold together: a program may have any number of processes.
//
// Owned by DriverRoom. Ring thread only; nothing fails.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gpuloom::executor {

// How many the executor asks the driver for.
inline constexpr uint32_t kHardwareQueues = 16;

class HardwareQueues {
 public:
  // `queues`: what the context has.
  explicit HardwareQueues(uint32_t queues)
      : held_most_(std::max(queues, kNotToBeHeld + 2) - kNotToBeHeld) {}

  // An allocation has one in any case; beyond that its part of those that may be held, of which a lone one leaves two to
  // who comes next.
  bool MayTake(uint32_t mine, uint32_t more = 1) const {
    if (mine == 0 && more == 1) return true;
    const uint32_t others = holders_ - (mine == 0 ? 0 : 1);
    const uint32_t part = others == 0 ? held_most_ - 2 : held_most_ / (others + 1);
    return mine + more <= part && held_ + more <= held_most_;
  }
  // The same for what can be done without: nobody has one in any case.
  bool MaySpare(uint32_t mine) const { return held_ < held_most_ && MayTake(mine); }
  void Take(uint32_t* mine, uint32_t queues = 1) {
    if (queues == 0) return;
    holders_ += *mine == 0;
    *mine += queues;
    held_ += queues;
  }
  void Give(uint32_t* mine, uint32_t queues) {
    if (queues == 0) return;
    *mine -= queues;
    held_ -= queues;
    holders_ -= *mine == 0;
  }

  uint32_t held() const { return held_; }

 private:
  // Measured on an H200 with 580.159.04: beside 8 streams that hold one of 16 no other stood still, beside 9 some copies
  // did, beside 12 to 14 kernels, too; of 8 queues 2 could be held, of 10 also 2, of 32 at least 24.
  static constexpr uint32_t kNotToBeHeld = 8;

  const uint32_t held_most_;
  uint32_t held_ = 0;
  uint32_t holders_ = 0;  // allocations that hold any
};

}  // namespace gpuloom::executor
