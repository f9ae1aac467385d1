// SPDX-License-Identifier: Apache-2.0
// Instructions in which the lanes of a warp exchange values. Each lane brings its operands; when all members of its
// mask have arrived, the results are written. The lanes need not be at the same place in the code. Pure functions and
// constants.
#pragma once

#include <cstdint>

namespace gpuloom::softgpu {

// Instr::extra of such an instruction. Lanes meet when their values and masks are equal.
enum WarpOp : uint16_t {
  kShuffleUp,
  kShuffleDown,
  kShuffleButterfly,
  kShuffleIndex,
  kVoteAll,
  kVoteAny,
  kVoteUniform,
  kVoteBallot,
  kMatchAny,
  kMatchAll,
  kReduceAddU,
  kReduceMinU,
  kReduceMaxU,
  kReduceMinS,
  kReduceMaxS,
  kReduceAnd,
  kReduceOr,
  kReduceXor,
  kElect,
  kSyncWarp,
};

// Instr::flags of shfl and match: e holds a predicate to write.
inline constexpr uint8_t kWritesPredicate = 0x01;
inline constexpr uint8_t kWritesRegister = 0x02;  // for match and elect: d is present

// Where shfl takes a lane's value from.
struct Shuffled {
  uint32_t lane;
  bool in_range;
};

// b: which lane, or how far; c: clamp in the low five bits, segment mask above. Has no branches on values that differ
// between lanes.
[[gnu::always_inline]] inline Shuffled ShuffleSource(uint16_t op, uint32_t lane, uint32_t b,
                                                     uint32_t c) {
  const int32_t clamp = static_cast<int32_t>(c & 31);
  const uint32_t segment = (c >> 8) & 31;
  const auto highest = static_cast<int32_t>((lane & segment) | (clamp & ~segment & 31));
  const auto lowest = static_cast<int32_t>(lane & segment);
  const auto self = static_cast<int32_t>(lane);
  const auto by = static_cast<int32_t>(b & 31);
  int32_t from = 0;
  switch (op) {
    case kShuffleUp:
      from = self - by;
      break;
    case kShuffleDown:
      from = self + by;
      break;
    case kShuffleButterfly:
      from = self ^ by;
      break;
    default:
      from = lowest | (by & ~static_cast<int32_t>(segment));
  }
  // For .up, the clamp is the lowest lane.
  const bool in_range = op == kShuffleUp ? from >= highest : from <= highest;
  return {in_range ? static_cast<uint32_t>(from) & 31 : lane, in_range};
}

}  // namespace gpuloom::softgpu
