// SPDX-License-Identifier: Apache-2.0
// shfl, vote, match, redux, activemask, elect and bar.warp. Each lane brings its operands to
// Warp::Arrive(), which finishes the instruction when all members are there; shfl and
// bar.warp.sync, the frequent ones, look first whether they all are and need no waiting then.
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/warp_ops.h"

namespace gpuloom::softgpu {
namespace {

// All members of the executing lanes' one mask are here, and no others: there is no waiting.
[[gnu::always_inline]] inline bool AllAreHere(const Warp& warp, const uint32_t* masks) {
  const uint32_t mask = masks[std::countr_zero(warp.exec)];
  const uint32_t same = MaskOf([=](uint32_t i) { return masks[i] == mask; });
  return (warp.exec & ~(same & mask)) == 0 && (mask & warp.live() & ~warp.exec) == 0;
}

// a, b, c: 32-bit operands; the mask is the 32-bit source that imm names.
Step ArriveWords(Warp& warp, const Instr& in) {
  const uint32_t* a = warp.Source<uint32_t>(in.a);
  const uint32_t* b = warp.Source<uint32_t>(in.b);
  const uint32_t* c = warp.Source<uint32_t>(in.c);
  const uint32_t* mask = warp.Source<uint32_t>(static_cast<Ref>(in.imm));
  // Belongs to lanes that execute; Arrive() reads no others.
  WarpWait waits[kLanes];
  ForEach(warp.exec, [&](uint32_t i) {
    waits[i].mask = mask[i];
    waits[i].a = a[i];
    waits[i].b = b[i];
    waits[i].c = c[i];
    waits[i].wide = a[i];
  });
  return warp.Arrive(in, waits);
}

// shfl, when all are here.
template <uint16_t kOp>
Step Shuffle(Warp& warp, const Instr& in) {
  if (!AllAreHere(warp, warp.Source<uint32_t>(static_cast<Ref>(in.imm)))) {
    return ArriveWords(warp, in);
  }
  const uint32_t* a = warp.Source<uint32_t>(in.a);
  const uint32_t* b = warp.Source<uint32_t>(in.b);
  const uint32_t* c = warp.Source<uint32_t>(in.c);
  const uint32_t exec = warp.exec;
  // d may be a, from which other lanes still read.
  uint32_t values[kLanes];
  const uint32_t in_range = MaskOf([&](uint32_t i) {
    const Shuffled source = ShuffleSource(kOp, i, b[i], c[i]);
    values[i] = a[IsOn(exec, source.lane) ? source.lane : i];
    return source.in_range;
  });
  if (in.flags & kWritesPredicate) warp.SetPredicate(in.e, in_range);
  return Apply<uint32_t>(warp, in, [&](uint32_t i) { return values[i]; });
}

// bar.warp.sync
Step SyncWarp(Warp& warp, const Instr& in) {
  const bool here = AllAreHere(warp, warp.Source<uint32_t>(static_cast<Ref>(in.imm)));
  return here ? Step::kNext : ArriveWords(warp, in);
}

// match of 64 bits.
Step ArriveWide(Warp& warp, const Instr& in) {
  const uint64_t* a = warp.Source<uint64_t>(in.a);
  const uint32_t* mask = warp.Source<uint32_t>(static_cast<Ref>(in.imm));
  WarpWait waits[kLanes];
  ForEach(warp.exec, [&](uint32_t i) {
    waits[i].mask = mask[i];
    waits[i].wide = a[i];
  });
  return warp.Arrive(in, waits);
}

// vote. a: predicate; target: whether it is negated.
Step ArrivePredicate(Warp& warp, const Instr& in) {
  const uint32_t bits = in.target != 0 ? ~warp.Predicate(in.a) : warp.Predicate(in.a);
  const uint32_t* mask = warp.Source<uint32_t>(static_cast<Ref>(in.imm));
  WarpWait waits[kLanes];
  ForEach(warp.exec, [&](uint32_t i) {
    waits[i].mask = mask[i];
    waits[i].a = (bits >> i) & 1;
  });
  return warp.Arrive(in, waits);
}

// The lanes that run together just now: PTX promises no more.
Step ActiveMask(Warp& warp, const Instr& in) {
  const uint32_t mask = warp.exec;
  return Apply<uint32_t>(warp, in, [=](uint32_t) { return mask; });
}

// The mask does not fit with the operands, so its place is in imm.
bool EmitWords(Decoder& decoder, Instr in, const ptx::Operand& mask) {
  in.imm = static_cast<int64_t>(decoder.Source(mask, 4));
  return decoder.Emit(ArriveWords, in);
}

// d, or d|p. Either may be left out as `_`.
bool TakeResults(Decoder& decoder, const ptx::Operand& operand, Instr* in) {
  in->flags |= kWritesRegister;
  if (operand.kind == ptx::Operand::kPair) {
    in->d = decoder.Destination(operand.parts[0], 4);
    in->e = decoder.DestinationPredicate(operand.parts[1]);
    in->flags |= kWritesPredicate;
  } else {
    in->d = decoder.Destination(operand, 4);
  }
  return true;
}

}  // namespace

bool DecodeShfl(Decoder& decoder, Op& op) {
  const std::string_view mode = op.mods.TakeOneOf({"up", "down", "bfly", "idx"});
  if (mode.empty() || !op.mods.Take("sync") || !op.mods.Take("b32") || op.count() != 5)
    return false;
  Instr in;
  Handler run = ForVectors<Shuffle<kShuffleIndex>>();
  in.extra = kShuffleIndex;
  if (mode == "up") {
    run = ForVectors<Shuffle<kShuffleUp>>();
    in.extra = kShuffleUp;
  } else if (mode == "down") {
    run = ForVectors<Shuffle<kShuffleDown>>();
    in.extra = kShuffleDown;
  } else if (mode == "bfly") {
    run = ForVectors<Shuffle<kShuffleButterfly>>();
    in.extra = kShuffleButterfly;
  }
  TakeResults(decoder, op[0], &in);
  in.a = decoder.Source(op[1], 4);
  in.b = decoder.Source(op[2], 4);
  in.c = decoder.Source(op[3], 4);
  in.imm = static_cast<int64_t>(decoder.Source(op[4], 4));
  return decoder.Emit(run, in);
}

bool DecodeVote(Decoder& decoder, Op& op) {
  const std::string_view mode = op.mods.TakeOneOf({"all", "any", "uni", "ballot"});
  if (mode.empty() || !op.mods.Take("sync") || op.count() != 3) return false;
  Instr in;
  if (mode == "ballot") {
    if (!op.mods.Take("b32")) return false;
    in.extra = kVoteBallot;
    in.d = decoder.Destination(op[0], 4);
  } else {
    if (!op.mods.Take("pred")) return false;
    in.extra = mode == "all" ? kVoteAll : mode == "any" ? kVoteAny : kVoteUniform;
    in.d = decoder.DestinationPredicate(op[0]);
  }
  const PredicateRef a = decoder.SourcePredicate(op[1]);
  in.a = a.number;
  in.target = a.negated ? 1 : 0;
  in.imm = static_cast<int64_t>(decoder.Source(op[2], 4));
  return decoder.Emit(ArrivePredicate, in);
}

bool DecodeMatch(Decoder& decoder, Op& op) {
  const std::string_view mode = op.mods.TakeOneOf({"any", "all"});
  if (mode.empty() || !op.mods.Take("sync") || op.count() != 3) return false;
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  in.extra = mode == "any" ? kMatchAny : kMatchAll;
  TakeResults(decoder, op[0], &in);
  in.a = decoder.Source(op[1], type);
  // ArriveWords() reads three operands, whatever the instruction has.
  in.b = in.c = in.a;
  if (type == ptx::Type::kB32) return EmitWords(decoder, in, op[2]);
  if (type != ptx::Type::kB64) return false;
  in.imm = static_cast<int64_t>(decoder.Source(op[2], 4));
  return decoder.Emit(ArriveWide, in);
}

bool DecodeRedux(Decoder& decoder, Op& op) {
  const std::string_view what = op.mods.TakeOneOf({"add", "min", "max", "and", "or", "xor"});
  if (what.empty() || !op.mods.Take("sync") || op.count() != 3) return false;
  const ptx::Type type = op.mods.TakeType();
  const bool logic = what == "and" || what == "or" || what == "xor";
  const bool is_signed = type == ptx::Type::kS32;
  if (logic ? type != ptx::Type::kB32 : type != ptx::Type::kU32 && !is_signed) return false;
  Instr in;
  if (what == "add")
    in.extra = kReduceAddU;
  else if (what == "min")
    in.extra = is_signed ? kReduceMinS : kReduceMinU;
  else if (what == "max")
    in.extra = is_signed ? kReduceMaxS : kReduceMaxU;
  else
    in.extra = what == "and" ? kReduceAnd : what == "or" ? kReduceOr : kReduceXor;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], 4);
  in.b = in.c = in.a;
  return EmitWords(decoder, in, op[2]);
}

bool DecodeActivemask(Decoder& decoder, Op& op) {
  if (!op.mods.Take("b32") || op.count() != 1) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  return decoder.Emit(ActiveMask, in);
}

bool DecodeElect(Decoder& decoder, Op& op) {
  if (!op.mods.Take("sync") || op.count() != 2 || op[0].kind != ptx::Operand::kPair) return false;
  Instr in;
  in.extra = kElect;
  TakeResults(decoder, op[0], &in);
  in.a = in.b = in.c = decoder.Constant(0, 4);
  return EmitWords(decoder, in, op[1]);
}

// For instructions of whole warps (.aligned): the same as bar.warp.sync of all lanes.
bool EmitSyncWarp(Decoder& decoder) {
  Instr in;
  in.extra = kSyncWarp;
  in.a = in.b = in.c = decoder.Constant(0, 4);
  in.imm = static_cast<int64_t>(decoder.Constant(kAllLanes, 4));
  return decoder.Emit(SyncWarp, in);
}

bool DecodeBarWarp(Decoder& decoder, Op& op) {
  if (!op.mods.Take("warp") || !op.mods.Take("sync") || op.count() != 1) return false;
  Instr in;
  in.extra = kSyncWarp;
  in.a = in.b = in.c = decoder.Constant(0, 4);
  in.imm = static_cast<int64_t>(decoder.Source(op[0], 4));
  return decoder.Emit(SyncWarp, in);
}

}  // namespace gpuloom::softgpu
