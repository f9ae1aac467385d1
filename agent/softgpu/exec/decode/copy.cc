// SPDX-License-Identifier: Apache-2.0
// cp: copies that run in parallel with the program on a GPU, and are done at once here.
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

// cp.async, done at once: reads kBytes, or as many as c says, and fills up with zeros. b and
// target: the address to read from and its offset.
template <uint32_t kBytes>
Step CopyToShared(Warp& warp, const Instr& in) {
  Pointers to;
  if (!warp.Resolve(in, kBytes, true, &to)) return Step::kFault;
  const uint64_t* source = warp.Source<uint64_t>(in.b);
  const uint32_t* size = warp.Source<uint32_t>(in.c);
  uint64_t addresses[kLanes];
  for (uint32_t i = 0; i < kLanes; ++i) addresses[i] = source[i] + static_cast<uint64_t>(in.target);
  // All is read before anything is written: a lane's source may be another's destination.
  std::byte copies[kLanes][kBytes] = {};
  const uint32_t all = warp.exec;
  // Lanes that read nothing must not fault, so only the others' addresses are resolved: the
  // resolver goes by `exec`.
  uint32_t reads = 0;
  ForEach(all, [&](uint32_t i) { reads |= (size[i] != 0 ? 1u : 0u) << i; });
  if (reads != 0) {
    warp.exec = reads;
    Pointers from;
    const bool ok = warp.ResolveAddresses(addresses, static_cast<uint8_t>(ptx::Space::kGlobal),
                                          kBytes, false, &from);
    warp.exec = all;
    if (!ok) return Step::kFault;
    ForEach(reads, [&](uint32_t i) {
      const std::byte* at = from.At(i);
      std::memcpy(copies[i], at, size[i] < kBytes ? size[i] : kBytes);
    });
  }
  ForEach(all, [&](uint32_t i) {
    std::byte* at = to.At(i);
    std::memcpy(at, copies[i], kBytes);
  });
  return Step::kNext;
}

// For the form with a predicate that makes lanes ignore their source.
// d = 0 where predicate a is true, else imm.
Step SizeUnless(Warp& warp, const Instr& in) {
  const uint32_t bits = warp.Predicate(in.a) ^ (in.extra != 0 ? kAllLanes : 0);
  const auto size = static_cast<uint32_t>(in.imm);
  return Apply<uint32_t>(warp, in, [=](uint32_t i) { return (bits >> i) & 1 ? 0 : size; });
}

bool DecodeAsyncCopy(Decoder& decoder, Op& op) {
  if (op.mods.Take("bulk")) return DecodeBulk(decoder, op, false);
  if (op.mods.Take("mbarrier")) return DecodeCopyArrive(decoder, op);
  // Every copy is done by now, so groups are empty and there is nothing to wait for.
  if (op.mods.Take("commit_group") || op.mods.Take("wait_all")) {
    return op.count() == 0 && decoder.Emit(Nothing, Instr());
  }
  if (op.mods.Take("wait_group")) return op.count() == 1 && decoder.Emit(Nothing, Instr());
  if (op.mods.TakeOneOf({"ca", "cg"}).empty() || !op.mods.TakePrefixed("shared") ||
      !op.mods.Take("global")) {
    return false;
  }
  const bool hinted = op.mods.Take("L2::cache_hint");  // a policy behind everything else
  op.mods.TakePrefixed("L2::");
  const size_t count = op.count() - (hinted ? 1 : 0);
  if (count < 3 || count > 4 || op.count() < 3 || op[2].kind != ptx::Operand::kInt) return false;
  Instr in;
  if (!decoder.Address(op[0], ptx::Space::kShared, &in)) return false;
  Instr source;
  if (!decoder.Address(op[1], ptx::Space::kGlobal, &source)) return false;
  // The second address shares the instruction with the first, so its offset goes into the target.
  if ((source.flags & kAddress32) != 0 || source.imm < 0 || source.imm > INT32_MAX) return false;
  in.b = source.a;
  in.target = static_cast<uint32_t>(source.imm);
  in.c = decoder.Constant(op[2].bits, 4);
  if (count == 4 && decoder.IsPredicate(op[3])) {
    // Lanes for which it is true read nothing.
    const PredicateRef ignored = decoder.SourcePredicate(op[3]);
    Instr size;
    size.a = ignored.number;
    size.extra = ignored.negated ? 1 : 0;
    size.d = in.c = decoder.NewRegister(4);
    size.imm = static_cast<int64_t>(op[2].bits);
    if (!decoder.Emit(SizeUnless, size)) return false;
  } else if (count == 4) {
    in.c = decoder.Source(op[3], 4);
  }
  switch (op[2].bits) {
    case 4:
      return decoder.Emit(CopyToShared<4>, in);
    case 8:
      return decoder.Emit(CopyToShared<8>, in);
    case 16:
      return decoder.Emit(CopyToShared<16>, in);
    default:
      return false;
  }
}

}  // namespace

bool DecodeCp(Decoder& decoder, Op& op) {
  const bool reduces = op.mods.Take("reduce");
  if (!op.mods.Take("async")) return false;
  if (reduces) return op.mods.Take("bulk") && DecodeBulk(decoder, op, true);
  return DecodeAsyncCopy(decoder, op);
}

}  // namespace gpuloom::softgpu
