// SPDX-License-Identifier: Apache-2.0
// Barriers in shared memory (mbarrier), which copies of whole blocks of memory report to.
#include "agent/softgpu/exec/machine/mbarrier.h"

#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/fence.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

enum What : uint16_t {
  kInit,
  kInvalidate,
  kArrive,
  kArriveDrop,
  kArriveExpect,
  kExpect,
  kComplete
};

// One operation on the barrier object, for each executing lane in turn. b: the count, or the bytes.
// The object is touched by this thread only: all blocks of a cluster run on it.
Step Change(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(uint64_t), true, &at)) return Step::kFault;
  const uint32_t* counts = warp.Source<uint32_t>(in.b);
  uint64_t* const d = (in.flags & kWritesState) != 0 ? warp.Destination<uint64_t>(in.d) : nullptr;
  bool valid = true;
  // Arriving releases what was written before.
  Fence();
  ForEach(warp.exec, [&](uint32_t i) {
    std::byte* const word = at.At(i);
    Mbarrier barrier = Mbarrier::Load(word);
    // The token is the state before the arrival: its phase is the one that the lane may wait for.
    if (d != nullptr) d[i] = barrier.Token();
    const uint32_t count = counts[i];
    switch (in.extra) {
      case kInit:
        valid &= count >= 1 && count <= Mbarrier::kMaxCount;
        barrier = Mbarrier::Of(count);
        break;
      case kInvalidate:
        barrier = Mbarrier();
        break;
      case kArrive:
        valid &= barrier.Arrive(count);
        break;
      case kArriveDrop:
        valid &= barrier.ArriveAndDrop(count);
        break;
      case kArriveExpect:
        // The order matters: an arrival may end the phase only when its bytes are expected.
        barrier.Expect(count);
        valid &= barrier.Arrive(1);
        break;
      case kExpect:
        barrier.Expect(count);
        break;
      default:
        barrier.Complete(count);
        break;
    }
    barrier.Store(word);
  });
  if (!valid) return warp.Fault(Outcome::kIllegalInstruction, 0, "an mbarrier's count is wrong");
  return Step::kNext;
}

// b: the token, or with `extra` the parity. True when the phase that it names has ended: a barrier
// only knows which of two alternating phases it is in.
Step Test(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(uint64_t), false, &at)) return Step::kFault;
  const uint64_t* tokens = warp.Source<uint64_t>(in.b);
  const uint32_t* parities = warp.Source<uint32_t>(in.b);
  uint32_t bits = 0;
  ForEach(warp.exec, [&](uint32_t i) {
    const std::byte* const word = at.At(i);
    const Mbarrier barrier = Mbarrier::Load(word);
    const uint32_t phase = in.extra != 0 ? parities[i] & 1 : Mbarrier::PhaseOf(tokens[i]);
    bits |= (barrier.phase != phase ? 1u : 0u) << i;
  });
  warp.SetPredicate(in.d, bits);
  Fence();
  // A loop around this test is how programs wait.
  warp.Waited();
  return Step::kNext;
}

// Taken and forgotten: every operation orders memory.
void TakeOrdering(Op& op) {
  op.mods.TakeOneOf({"relaxed", "acquire", "release"});
  op.mods.TakeOneOf({"cta", "cluster"});
}

ptx::Space TakeShared(Op& op) {
  return op.mods.TakePrefixed("shared") ? ptx::Space::kShared : ptx::Space::kGeneric;
}

bool DecodeArrive(Decoder& decoder, Op& op, bool drop) {
  Instr in;
  const bool expects = op.mods.Take("expect_tx");
  // It promises that the arrival does not end the phase, and changes nothing else.
  op.mods.Take("noComplete");
  if (drop && expects) return false;
  in.extra = expects ? kArriveExpect : drop ? kArriveDrop : kArrive;
  TakeOrdering(op);
  const ptx::Space space = TakeShared(op);
  if (!op.mods.Take("b64")) return false;
  // The token may be left out only for another block's barrier; then the address comes first.
  const size_t first = op[0].kind == ptx::Operand::kAddress ? 0 : 1;
  if (op.count() < first + 1 || op.count() > first + 2) return false;
  if (expects && op.count() != first + 2) return false;
  if (first == 1 && op[0].name != "_") {
    in.d = decoder.Destination(op[0], 8);
    in.flags |= kWritesState;
  }
  if (!decoder.Address(op[first], space, &in)) return false;
  in.b = op.count() == first + 2 ? decoder.Source(op[first + 1], 4) : decoder.Constant(1, 4);
  return decoder.Emit(Change, in);
}

bool DecodeWait(Decoder& decoder, Op& op) {
  Instr in;
  in.extra = op.mods.Take("parity") ? 1 : 0;
  TakeOrdering(op);
  const ptx::Space space = TakeShared(op);
  if (!op.mods.Take("b64") || op.count() < 3 || op.count() > 4) return false;
  in.d = decoder.DestinationPredicate(op[0]);
  in.b = decoder.Source(op[2], in.extra != 0 ? 4 : 8);
  // The fourth operand says how long try_wait may sleep: not at all is allowed.
  if (op.count() == 4) decoder.Source(op[3], 4);
  return decoder.Address(op[1], space, &in) && decoder.Emit(Test, in);
}

// init, inval, expect_tx and complete_tx: an address, and a number where `operands` is 2.
bool DecodeSimple(Decoder& decoder, Op& op, What what, size_t operands) {
  Instr in;
  in.extra = what;
  TakeOrdering(op);
  const ptx::Space space = TakeShared(op);
  if (!op.mods.Take("b64") || op.count() != operands) return false;
  in.b = operands == 2 ? decoder.Source(op[1], 4) : decoder.Constant(0, 4);
  return decoder.Address(op[0], space, &in) && decoder.Emit(Change, in);
}

}  // namespace

bool DecodeMbarrier(Decoder& decoder, Op& op) {
  if (op.mods.Take("init")) return DecodeSimple(decoder, op, kInit, 2);
  if (op.mods.Take("inval")) return DecodeSimple(decoder, op, kInvalidate, 1);
  if (op.mods.Take("arrive")) return DecodeArrive(decoder, op, false);
  if (op.mods.Take("arrive_drop")) return DecodeArrive(decoder, op, true);
  if (op.mods.Take("test_wait") || op.mods.Take("try_wait")) return DecodeWait(decoder, op);
  if (op.mods.Take("expect_tx")) return DecodeSimple(decoder, op, kExpect, 2);
  if (op.mods.Take("complete_tx")) return DecodeSimple(decoder, op, kComplete, 2);
  if (op.mods.Take("pending_count")) {
    if (!op.mods.Take("b64") || op.count() != 2) return false;
    Instr in;
    in.d = decoder.Destination(op[0], 4);
    in.a = decoder.Source(op[1], 8);
    return decoder.Emit(
        Map1<uint32_t, uint64_t>([](uint64_t token) { return Mbarrier::PendingOf(token); }), in);
  }
  return false;
}

// cp.async.mbarrier.arrive: the copies before it are done, so that what it adds to the barrier's
// expectation is there at once. With .noinc the program has counted it itself.
bool DecodeCopyArrive(Decoder& decoder, Op& op) {
  if (!op.mods.Take("arrive")) return false;
  const bool counted = op.mods.Take("noinc");
  Instr in;
  in.extra = counted ? kArrive : kExpect;
  const ptx::Space space = TakeShared(op);
  if (!op.mods.Take("b64") || op.count() != 1) return false;
  // An expectation of no bytes changes nothing.
  in.b = decoder.Constant(counted ? 1 : 0, 4);
  return decoder.Address(op[0], space, &in) && decoder.Emit(Change, in);
}

}  // namespace gpuloom::softgpu
