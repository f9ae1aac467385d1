// SPDX-License-Identifier: Apache-2.0
// How many launches a chain may have so that it lasts no longer than a bound, without changing at every measurement.
//
// A chain is recognized by its content, so a cut that moves with every measurement would make each chain a new one
// (docs/design/batching.md). Lengths are therefore powers of two, and the chosen length stays until the prediction is
// clearly off: it is halved when the chain would last more than 5/4 of the bound, and doubled when twice as many
// launches would last less than 3/4 of it. In between nothing moves, which is a factor of 10/3 in the time of one
// launch.
//
//   CutPoint cut;                                       // one per stream
//   const uint32_t launches = cut.Update(mean_ns, bound_ns);   // before a chunk begins, not inside
//
// Plain value, one thread. A launch longer than the bound is a chain of one. Nothing fails.
#pragma once

#include <cstdint>

namespace gpuloom::arbiter {

// No bound: no lower class is held back, and chains are as long as batching wants them.
inline constexpr uint64_t kUnbounded = UINT64_MAX;

class CutPoint {
 public:
  static constexpr uint32_t kMostLaunches = 64;

  // `launch_ns`: how long one launch of the stream is predicted to take.
  uint32_t Update(uint64_t launch_ns, uint64_t bound_ns) {
    // The chosen length is kept for the next bound.
    if (bound_ns == kUnbounded) return kMostLaunches;
    // For all larger values the products below compare alike, and none overflows.
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
