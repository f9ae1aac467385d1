// SPDX-License-Identifier: Apache-2.0
// How many launches a chain may have so that it lasts no longer than a bound, without wobbling.
//
// A chain is found again by its content, so a cut that moves with every measurement would make each
// chain a new one (docs/design/batching.md). Lengths are therefore powers of two, and the one that was chosen
// stays until the prediction is clearly beside it: it is halved when the chain would last more than 5/4 of the
// bound, and doubled when twice as many would last less than 3/4 of it. In between, and that is
// a factor of 10/3 for one launch's time, nothing moves.
//
//   CutPoint cut;                                       // one a stream
//   const uint32_t launches = cut.Update(mean_ns, bound_ns);   // before a chunk begins, not inside
//
// Plain value, one thread. A launch longer than the bound is a chain of one.
#pragma once

#include <cstdint>

namespace gpuloom::arbiter {

// No bound: no lower class is held back, chains are as long as batching wants them.
inline constexpr uint64_t kUnbounded = UINT64_MAX;

class CutPoint {
 public:
  static constexpr uint32_t kMostLaunches = 64;

  // `launch_ns`: what one launch of the stream is predicted to take.
  uint32_t Update(uint64_t launch_ns, uint64_t bound_ns) {
    if (bound_ns == kUnbounded)
      return kMostLaunches;  // and what was chosen is kept for the next time
    // Beyond this every product below is the same, and none overflows.
    launch_ns = launch_ns < kLongNs ? launch_ns : kLongNs;
    bound_ns = bound_ns < kLongNs ? bound_ns : kLongNs;
    while (launches_ > 1 && launch_ns * launches_ * 4 > bound_ns * 5) launches_ /= 2;
    while (launches_ < kMostLaunches && launch_ns * launches_ * 2 * 4 < bound_ns * 3)
      launches_ *= 2;
    return launches_;
  }

  uint32_t launches() const { return launches_; }

 private:
  static constexpr uint64_t kLongNs = uint64_t{1} << 48;
  uint32_t launches_ = kMostLaunches;
};

}  // namespace gpuloom::arbiter
