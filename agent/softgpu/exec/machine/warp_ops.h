// SPDX-License-Identifier: Apache-2.0
// Instructions in which the lanes of a warp look at each other. Each lane brings its operands; when
// all members of its mask have, the results are written. The lanes need not stand at the same
// place.
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
inline constexpr uint8_t kWritesRegister = 0x02;  // match, elect: d is there

}  // namespace gpuloom::softgpu
