// SPDX-License-Identifier: Apache-2.0
// The operands of the lanes that have arrived lie in waits_, by lane. Results are written through
// lane_frame_ and not through the running frame: the lanes that meet may be in different places,
// even in different calls.
#include "agent/softgpu/exec/machine/warp_ops.h"

#include <algorithm>
#include <bit>

#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/warp.h"

namespace gpuloom::softgpu {
namespace {

// Into the registers of a frame that need not be the running one.
void WriteWord(Frame* frame, Ref d, uint32_t lane, uint32_t value) {
  reinterpret_cast<uint32_t*>(frame->Register(d))[lane] = value;
}

void WriteBit(Frame* frame, uint32_t number, uint32_t lane, bool value) {
  uint32_t& bits = frame->predicates[number];
  bits = (bits & ~(1u << lane)) | ((value ? 1u : 0u) << lane);
}

// The 32-bit operations of redux. `waits[].a` is the lane's value; signed ones compare the same
// bits.
uint32_t Reduce(uint16_t op, uint32_t lanes, const WarpWait* waits) {
  uint32_t result = waits[std::countr_zero(lanes)].a;
  const auto as_signed = [](uint32_t v) { return static_cast<int32_t>(v); };
  ForEach(lanes & (lanes - 1), [&](uint32_t lane) {
    const uint32_t a = waits[lane].a;
    switch (op) {
      case kReduceAddU:
        result += a;
        break;
      case kReduceMinU:
        result = std::min(result, a);
        break;
      case kReduceMaxU:
        result = std::max(result, a);
        break;
      case kReduceMinS:
        result = as_signed(a) < as_signed(result) ? a : result;
        break;
      case kReduceMaxS:
        result = as_signed(a) > as_signed(result) ? a : result;
        break;
      case kReduceAnd:
        result &= a;
        break;
      case kReduceOr:
        result |= a;
        break;
      default:
        result ^= a;
    }
  });
  return result;
}

// waits[].a of a vote is the lane's predicate.
uint32_t Vote(uint16_t op, uint32_t lanes, const WarpWait* waits) {
  uint32_t ballot = 0;
  ForEach(lanes, [&](uint32_t lane) { ballot |= (waits[lane].a != 0 ? 1u : 0u) << lane; });
  switch (op) {
    case kVoteAll:
      return ballot == lanes;
    case kVoteAny:
      return ballot != 0;
    case kVoteUniform:
      return ballot == lanes || ballot == 0;
    default:
      return ballot;
  }
}

}  // namespace

// Completes one instruction for `lanes`, all of which have arrived at one with the same operation.
// Their Instr may differ, and with it where each wants its results.
void Warp::Finish(uint32_t lanes) {
  const uint16_t op = waits_[std::countr_zero(lanes)].instr->extra;
  // bar.warp.sync only waits.
  if (op == kSyncWarp) return;
  if (op <= kShuffleIndex) {
    ForEach(lanes, [&](uint32_t lane) {
      const WarpWait& wait = waits_[lane];
      const Shuffled source = ShuffleSource(op, lane, wait.b, wait.c);
      // Reading a lane that takes no part gives what it last brought: PTX leaves it undefined.
      const bool there = (lanes >> source.lane) & 1;
      const uint32_t value = there ? waits_[source.lane].a : wait.a;
      WriteWord(lane_frame_[lane], wait.instr->d, lane, value);
      if (wait.instr->flags & kWritesPredicate) {
        WriteBit(lane_frame_[lane], wait.instr->e, lane, source.in_range);
      }
    });
    return;
  }
  if (op == kMatchAny || op == kMatchAll) {
    const uint64_t first = waits_[std::countr_zero(lanes)].wide;
    bool equal = true;
    ForEach(lanes, [&](uint32_t lane) { equal &= waits_[lane].wide == first; });
    ForEach(lanes, [&](uint32_t lane) {
      const WarpWait& wait = waits_[lane];
      uint32_t same = 0;
      if (op == kMatchAny) {
        ForEach(lanes, [&](uint32_t other) {
          same |= (waits_[other].wide == wait.wide ? 1u : 0u) << other;
        });
      } else {
        // match.all gives all members or nobody.
        same = equal ? lanes : 0;
      }
      if (wait.instr->flags & kWritesRegister)
        WriteWord(lane_frame_[lane], wait.instr->d, lane, same);
      if (wait.instr->flags & kWritesPredicate) {
        WriteBit(lane_frame_[lane], wait.instr->e, lane, equal);
      }
    });
    return;
  }
  // PTX asks only that the same mask elects the same lane each time: it is the lowest.
  if (op == kElect) {
    const auto leader = static_cast<uint32_t>(std::countr_zero(lanes));
    ForEach(lanes, [&](uint32_t lane) {
      const Instr& in = *waits_[lane].instr;
      if (in.flags & kWritesRegister) WriteWord(lane_frame_[lane], in.d, lane, leader);
      WriteBit(lane_frame_[lane], in.e, lane, lane == leader);
    });
    return;
  }
  const bool is_vote = op >= kVoteAll && op <= kVoteBallot;
  const uint32_t value = is_vote ? Vote(op, lanes, waits_) : Reduce(op, lanes, waits_);
  ForEach(lanes, [&](uint32_t lane) {
    const Instr& in = *waits_[lane].instr;
    if (is_vote && op != kVoteBallot) {
      WriteBit(lane_frame_[lane], in.d, lane, value != 0);
    } else {
      WriteWord(lane_frame_[lane], in.d, lane, value);
    }
  });
}

Step Warp::Arrive(const Instr& in, const WarpWait* waits) {
  const uint32_t mask = waits[std::countr_zero(exec)].mask;
  bool uniform = true;
  ForEach(exec, [&](uint32_t lane) {
    waits_[lane] = waits[lane];
    waits_[lane].instr = &in;
    waits_[lane].mask |= 1u << lane;  // a lane outside of its own mask waits for itself
    uniform &= waits[lane].mask == mask;
  });
  // The fast way: all members are among the executing lanes, and no others. Neither park nor look
  // for a group.
  if (uniform && (mask & live_ & ~exec) == 0) {
    const uint32_t members = exec & mask;
    if (members == exec) {
      Finish(exec);
      return Step::kNext;
    }
  }
  // Some are still to come. The arrived ones wait behind the instruction: when it is finished for
  // them, they have nothing more to do there.
  Park(active & ~exec, pc + 1);
  Park(exec, pc + 1);
  in_warp_op_ |= exec;
  return Step::kSwitch;  // Select() finishes what can be
}

// Members that have ended are not waited for. Lanes meet only if their masks are equal and they
// execute the same operation; lanes that disagree wait for each other for ever, which the grid
// reports as a deadlock.
void Warp::FinishArrived() {
  uint32_t rest = in_warp_op_;
  // Each round either finishes a group or passes over one lane, so the loop ends.
  while (rest != 0) {
    const auto lane = static_cast<uint32_t>(std::countr_zero(rest));
    const uint32_t needed = waits_[lane].mask & live_;
    bool all = (needed & ~in_warp_op_) == 0;
    if (all) {
      ForEach(needed, [&](uint32_t other) {
        all &= waits_[other].mask == waits_[lane].mask &&
               waits_[other].instr->extra == waits_[lane].instr->extra;
      });
    }
    if (all) {
      Finish(needed);
      in_warp_op_ &= ~needed;
      rest &= ~needed;
    } else {
      rest &= rest - 1;
    }
  }
}

}  // namespace gpuloom::softgpu
