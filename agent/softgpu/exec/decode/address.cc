// SPDX-License-Identifier: Apache-2.0
// Conversions between address spaces, and hints about caches.
#include <cstring>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

Step Nothing(Warp&, const Instr&) { return Step::kNext; }

Step NoPolicy(Warp& warp, const Instr& in) {
  return Apply<uint64_t>(warp, in, [](uint32_t) { return uint64_t{0}; });
}

// d = a bytes of local memory, which is `extra` aligned.
template <class T>
Step AllocateLocal(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  T* d = warp.Destination<T>(in.d);
  bool fits = true;
  ForEach(warp.exec, [&](uint32_t i) {
    const uint32_t align = in.extra;
    // Bytes given back by the function's end or by stackrestore are taken again; nothing is
    // cleared.
    const uint32_t begin = (warp.allocated[i] + align - 1) / align * align;
    const uint64_t size = a[i];
    // Compared in 64 bits and without a sum: the size is the program's choice.
    if (begin > warp.local_bytes() || size > warp.local_bytes() - begin) {
      fits = false;
      return;
    }
    d[i] = begin;
    warp.allocated[i] = begin + static_cast<uint32_t>(size);
  });
  if (fits) return Step::kNext;
  return warp.Fault(Outcome::kStackOverflow, 0, "more alloca than there is local memory for");
}

template <class T>
Step SaveStack(Warp& warp, const Instr& in) {
  return Apply<T>(warp, in, [&](uint32_t i) { return T{warp.allocated[i]}; });
}

// The stack can only be restored to a position between the kernel's own variables and the current
// end.
template <class T>
Step RestoreStack(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  bool valid = true;
  ForEach(warp.exec, [&](uint32_t i) {
    valid &= a[i] <= warp.allocated[i] && a[i] + kAllocaBytes >= warp.local_bytes();
    if (valid) warp.allocated[i] = static_cast<uint32_t>(a[i]);
  });
  if (valid) return Step::kNext;
  return warp.Fault(Outcome::kStackOverflow, 0, "stackrestore of what stacksave has not given");
}

bool TakeAddressSize(Op& op, uint32_t* size) {
  const ptx::Type type = op.mods.TakeType();
  *size = ptx::SizeBytes(type);
  return type == ptx::Type::kU32 || type == ptx::Type::kU64;
}

// imm: the window of the address space; 0 for global and constant memory.
template <class T, bool kToSpace>
Step ConvertAddress(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const auto window = static_cast<uint64_t>(in.imm);
  return Apply<T>(warp, in, [=](uint32_t i) {
    const uint64_t address = a[i];
    // Global and constant addresses have no window, and are the same in both forms.
    return static_cast<T>(kToSpace ? (window != 0 ? address & ~kWindowMask : address)
                                   : address | window);
  });
}

template <class T>
Step IsInSpace(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const auto window = static_cast<uint64_t>(in.imm);
  uint32_t bits = 0;
  // All lanes are asked; SetPredicate() writes only those that execute.
  for (uint32_t i = 0; i < kLanes; ++i) {
    bits |= ((uint64_t{a[i]} & kWindowMask) == window ? 1u : 0u) << i;
  }
  warp.SetPredicate(in.d, bits);
  return Step::kNext;
}

bool TakeWindow(Op& op, int64_t* window) {
  if (op.mods.Take("global") || op.mods.Take("const"))
    *window = 0;
  else if (op.mods.TakePrefixed("shared"))
    *window = static_cast<int64_t>(kSharedWindow);
  else if (op.mods.Take("local"))
    *window = static_cast<int64_t>(kLocalWindow);
  else if (op.mods.TakePrefixed("param"))
    *window = static_cast<int64_t>(kParamWindow);
  else
    return false;
  return true;
}

// The address in another block's shared memory: rank + 1 above the offset, within the window.
template <class T>
Step MapToRank(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  // An address that names another block of the cluster already keeps its offset only.
  const uint32_t* rank = warp.Source<uint32_t>(in.b);
  return Apply<T>(warp, in, [=](uint32_t i) {
    const uint64_t window = uint64_t{a[i]} & kWindowMask;
    const uint64_t offset = uint64_t{a[i]} & ((1u << kClusterRankShift) - 1);
    return static_cast<T>(window | (uint64_t{rank[i]} + 1) << kClusterRankShift | offset);
  });
}

// An address without a rank is one of the block's own shared memory.
template <class T>
Step RankOf(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const uint32_t own = warp.block().cluster_rank;
  return Apply<uint32_t>(warp, in, [=](uint32_t i) {
    const uint64_t above = (uint64_t{a[i]} & ~kWindowMask) >> kClusterRankShift;
    return above == 0 ? own : static_cast<uint32_t>(above - 1);
  });
}

}  // namespace

// Generic addresses are those of this process, with a window in the highest byte for what is not
// global memory; so the conversion is a mask.
bool DecodeCvta(Decoder& decoder, Op& op) {
  const bool to = op.mods.Take("to");
  Instr in;
  if (!TakeWindow(op, &in.imm)) return false;
  const ptx::Type type = op.mods.TakeType();
  if ((type != ptx::Type::kU64 && type != ptx::Type::kU32) || op.count() != 2) return false;
  const uint32_t size = ptx::SizeBytes(type);
  // A 32-bit generic address could name nothing but what lies below 4 GiB.
  if (size == 4 && in.imm != 0) return false;
  in.d = decoder.Destination(op[0], size);
  in.a = decoder.Source(op[1], size);
  if (size == 4)
    return decoder.Emit(to ? ConvertAddress<uint32_t, true> : ConvertAddress<uint32_t, false>, in);
  return decoder.Emit(to ? ConvertAddress<uint64_t, true> : ConvertAddress<uint64_t, false>, in);
}

bool DecodeIsspacep(Decoder& decoder, Op& op) {
  Instr in;
  const bool is_const = op.mods.Has("const");
  if (!TakeWindow(op, &in.imm) || op.count() != 2) return false;
  // Constants lie in global memory here, so that no generic address is a constant one.
  if (is_const) in.imm = -1;
  in.d = decoder.DestinationPredicate(op[0]);
  in.a = decoder.Source(op[1], 8);
  return decoder.Emit(IsInSpace<uint64_t>, in);
}

bool DecodeMapa(Decoder& decoder, Op& op) {
  op.mods.TakePrefixed("shared");
  const ptx::Type type = op.mods.TakeType();
  if ((type != ptx::Type::kU32 && type != ptx::Type::kU64) || op.count() != 3) return false;
  Instr in;
  in.d = decoder.Destination(op[0], type == ptx::Type::kU32 ? 4 : 8);
  in.a = decoder.Source(op[1], type == ptx::Type::kU32 ? 4 : 8);
  in.b = decoder.Source(op[2], 4);
  return decoder.Emit(type == ptx::Type::kU32 ? MapToRank<uint32_t> : MapToRank<uint64_t>, in);
}

bool DecodeGetctarank(Decoder& decoder, Op& op) {
  op.mods.TakePrefixed("shared");
  const ptx::Type type = op.mods.TakeType();
  if ((type != ptx::Type::kU32 && type != ptx::Type::kU64) || op.count() != 2) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], type == ptx::Type::kU32 ? 4 : 8);
  return decoder.Emit(type == ptx::Type::kU32 ? RankOf<uint32_t> : RankOf<uint64_t>, in);
}

// Hints: the operands are checked, and nothing happens.
bool DecodePrefetch(Decoder& decoder, Op& op) {
  ptx::Space space = ptx::Space::kGeneric;
  if (op.mods.Take("global"))
    space = ptx::Space::kGlobal;
  else if (op.mods.Take("local"))
    space = ptx::Space::kLocal;
  else if (op.mods.Take("const"))
    space = ptx::Space::kConst;
  op.mods.TakePrefixed("param");
  op.mods.Take("tensormap");
  op.mods.TakeOneOf({"L1", "L2"});
  op.mods.TakePrefixed("L2::");
  Instr in;
  // Only the form of the address is checked: it need not be memory.
  return op.count() == 1 && decoder.Address(op[0], space, &in) && decoder.Emit(Nothing, Instr());
}

// Also decodes applypriority: an address and a size.
bool DecodeDiscard(Decoder& decoder, Op& op) {
  const ptx::Space space = op.mods.Take("global") ? ptx::Space::kGlobal : ptx::Space::kGeneric;
  op.mods.Take("L2");
  op.mods.TakePrefixed("L2::");
  Instr in;
  return op.count() == 2 && decoder.Address(op[0], space, &in) && decoder.Emit(Nothing, Instr());
}

// There is no cache whose policy it could be: 0 stands for every one.
bool DecodeCreatepolicy(Decoder& decoder, Op& op) {
  const std::string_view kind = op.mods.TakeOneOf({"fractional", "range", "cvt"});
  const size_t operands = kind == "range" ? 4 : 2;
  op.mods.Take("global");
  op.mods.Take("L2");
  op.mods.TakePrefixed("L2::");
  const bool whole = kind == "fractional" && op.count() == 1;  // the fraction is left out
  if (kind.empty() || !op.mods.Take("b64") || (op.count() != operands && !whole)) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 8);
  return decoder.Emit(NoPolicy, in);
}

bool DecodeAlloca(Decoder& decoder, Op& op) {
  uint32_t size = 0;
  constexpr uint64_t kUsualAlign = 8;
  if (!TakeAddressSize(op, &size) || op.count() < 2 || op.count() > 3) return false;
  const bool aligned = op.count() == 3;
  if (aligned && op[2].kind != ptx::Operand::kInt) return false;
  const uint64_t align = aligned ? op[2].bits : kUsualAlign;
  if (align == 0 || align > 128 || (align & (align - 1)) != 0) return false;
  Instr in;
  in.d = decoder.Destination(op[0], size);
  in.a = decoder.Source(op[1], size);
  in.extra = static_cast<uint16_t>(align);
  decoder.AllocatesLocal();
  return decoder.Emit(size == 4 ? AllocateLocal<uint32_t> : AllocateLocal<uint64_t>, in);
}

bool DecodeStacksave(Decoder& decoder, Op& op) {
  uint32_t size = 0;
  if (!TakeAddressSize(op, &size) || op.count() != 1) return false;
  Instr in;
  in.d = decoder.Destination(op[0], size);
  decoder.AllocatesLocal();
  return decoder.Emit(size == 4 ? SaveStack<uint32_t> : SaveStack<uint64_t>, in);
}

bool DecodeStackrestore(Decoder& decoder, Op& op) {
  uint32_t size = 0;
  if (!TakeAddressSize(op, &size) || op.count() != 1) return false;
  // The pointer that stacksave gave: RestoreStack() checks it, as a program may bring any number.
  Instr in;
  in.a = decoder.Source(op[0], size);
  decoder.AllocatesLocal();
  return decoder.Emit(size == 4 ? RestoreStack<uint32_t> : RestoreStack<uint64_t>, in);
}

}  // namespace gpuloom::softgpu
