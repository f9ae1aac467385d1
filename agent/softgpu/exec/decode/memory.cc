// SPDX-License-Identifier: Apache-2.0
// Loads and stores. The loops over 16 lanes are where many kernels spend their time: they exist
// once for each pattern of addresses that Pointers tells apart, so that the compiler makes vector
// code of them.
#include <atomic>
#include <cstring>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/fence.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

template <class T>
T ReadAt(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
template <class T>
void WriteAt(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// T: the type in memory, which determines how it is extended; R: the register's value.
template <class T, class R>
Step Load(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), false, &at)) return Step::kFault;
  R* const d = warp.Destination<R>(in.d);
  // The patterns of a half: one value for all its lanes, one after another, and any other step.
  if (at.regular && warp.exec == kAllLanes) {
    for (uint32_t h = 0; h < 2; ++h) {
      const Pointers::Half& half = at.half[h];
      const auto* const from = half.At<const T>(0);
      R* const to = d + h * kHalf;
      if (half.step_bytes == 0) {
        const R value = static_cast<R>(*from);
        ForAll<kHalf>([=](uint32_t i) { to[i] = value; });
      } else if (half.step_bytes == sizeof(T)) {
        ForAll<kHalf>([=](uint32_t i) { to[i] = static_cast<R>(from[i]); });
      } else {
        // Local memory: lanes lie a stride apart.
        for (uint32_t i = 0; i < kHalf; ++i) to[i] = static_cast<R>(*half.At<const T>(i));
      }
    }
  } else if (warp.exec == kAllLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) d[i] = static_cast<R>(ReadAt<T>(at.lane[i]));
  } else {
    ForEach(warp.exec, [&](uint32_t i) { d[i] = static_cast<R>(ReadAt<T>(at.At(i))); });
  }
  // An ordered load may be one of a loop that waits for another thread.
  if (in.flags & (kVolatile | kAcquireRelease)) {
    warp.Waited();
    // Behind the load: nothing that follows may be read before it.
    if (in.flags & kAcquireRelease) Fence();
  }
  return Step::kNext;
}

// kCount elements, into the registers d, e, b, c: an Instr has no better place for four.
template <class T, class R, uint32_t kCount>
Step LoadVector(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, kCount * sizeof(T), false, &at)) return Step::kFault;
  R* const d[] = {warp.Destination<R>(in.d), warp.Destination<R>(in.e), warp.Destination<R>(in.b),
                  warp.Destination<R>(in.c)};
  if (at.regular && warp.exec == kAllLanes) {
    for (uint32_t h = 0; h < 2; ++h) {
      const Pointers::Half& half = at.half[h];
      const auto* const from = half.At<const T>(0);
      if (half.step_bytes == 0) {
        for (uint32_t k = 0; k < kCount; ++k) {
          R* const to = d[k] + h * kHalf;
          const R value = static_cast<R>(from[k]);
          ForAll<kHalf>([=](uint32_t i) { to[i] = value; });
        }
      } else if (half.step_bytes == kCount * sizeof(T)) {
        ForAll<kHalf>([=](uint32_t i) {
          for (uint32_t k = 0; k < kCount; ++k) {
            d[k][h * kHalf + i] = static_cast<R>(from[i * kCount + k]);
          }
        });
      } else {
        for (uint32_t i = 0; i < kHalf; ++i) {
          for (uint32_t k = 0; k < kCount; ++k) {
            d[k][h * kHalf + i] = static_cast<R>(half.At<const T>(i)[k]);
          }
        }
      }
    }
  } else {
    ForEach(warp.exec, [&](uint32_t i) {
      const std::byte* const from = at.At(i);
      for (uint32_t k = 0; k < kCount; ++k) {
        d[k][i] = static_cast<R>(ReadAt<T>(from + k * sizeof(T)));
      }
    });
  }
  if (in.flags & kVolatile) warp.Waited();
  if (in.flags & kAcquireRelease) Fence();
  return Step::kNext;
}

// A kernel's parameter at a fixed place is the same for all lanes. The place may lie outside of the
// block: an operand adds any number to a parameter's.
template <class T, class R>
Step LoadParam(Warp& warp, const Instr& in) {
  const std::vector<std::byte>& params = warp.block().run().params;
  const auto at = static_cast<uint64_t>(in.imm);
  if (at % sizeof(T) != 0) {
    return warp.Fault(Outcome::kMisaligned, at, "a parameter is not aligned");
  }
  // Without a sum that could wrap: the number may be negative.
  if (at > params.size() || sizeof(T) > params.size() - at) {
    return warp.Fault(Outcome::kIllegalAddress, at, "a parameter outside of the parameter block");
  }
  T value;
  std::memcpy(&value, params.data() + at, sizeof(T));
  const R wide = static_cast<R>(value);
  return Apply<R>(warp, in, [=](uint32_t) { return wide; });
}

template <class T, class R>
Step Store(Warp& warp, const Instr& in) {
  // Before the store: what was written earlier must be visible first.
  if (in.flags & kAcquireRelease) Fence();
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), true, &at)) return Step::kFault;
  const R* const d = warp.Source<R>(in.d);
  if (at.regular && warp.exec == kAllLanes) {
    for (uint32_t h = 0; h < 2; ++h) {
      const Pointers::Half& half = at.half[h];
      auto* const to = half.At<T>(0);
      const R* const from = d + h * kHalf;
      // If several lanes store to one place, the highest wins here; PTX leaves it open.
      if (half.step_bytes == sizeof(T)) {
        ForAll<kHalf>([=](uint32_t i) { to[i] = static_cast<T>(from[i]); });
      } else {
        for (uint32_t i = 0; i < kHalf; ++i) *half.At<T>(i) = static_cast<T>(from[i]);
      }
    }
  } else if (warp.exec == kAllLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) WriteAt(at.lane[i], static_cast<T>(d[i]));
  } else {
    ForEach(warp.exec, [&](uint32_t i) { WriteAt(at.At(i), static_cast<T>(d[i])); });
  }
  return Step::kNext;
}

template <class T, class R, uint32_t kCount>
Step StoreVector(Warp& warp, const Instr& in) {
  if (in.flags & kAcquireRelease) Fence();
  Pointers at;
  if (!warp.Resolve(in, kCount * sizeof(T), true, &at)) return Step::kFault;
  const R* const d[] = {warp.Source<R>(in.d), warp.Source<R>(in.e), warp.Source<R>(in.b),
                        warp.Source<R>(in.c)};
  ForEach(warp.exec, [&](uint32_t i) {
    std::byte* const to = at.At(i);
    for (uint32_t k = 0; k < kCount; ++k) WriteAt(to + k * sizeof(T), static_cast<T>(d[k][i]));
  });
  return Step::kNext;
}

// The operation on memory, and its number of registers.
enum class Access { kLoad, kLoad2, kLoad4, kLoadParam, kStore, kStore2, kStore4 };

// A register may be wider than the type, never narrower.
template <class T, class R>
Handler HandlerFor(Access access) {
  if constexpr (sizeof(R) >= sizeof(T)) {
    switch (access) {
      case Access::kLoad:
        return ForVectors<Load<T, R>>();
      case Access::kLoad2:
        return ForVectors<LoadVector<T, R, 2>>();
      case Access::kLoad4:
        return ForVectors<LoadVector<T, R, 4>>();
      case Access::kLoadParam:
        return LoadParam<T, R>;
      case Access::kStore:
        return ForVectors<Store<T, R>>();
      case Access::kStore2:
        return StoreVector<T, R, 2>;
      case Access::kStore4:
        return StoreVector<T, R, 4>;
    }
  }
  return nullptr;
}

template <class T>
Handler WithRegister(Access access, uint32_t register_bytes) {
  // Loads extend according to the type, so the register gets its sign.
  constexpr bool kSigned = std::is_signed_v<T>;
  switch (register_bytes) {
    case 1:
      return HandlerFor<T, std::conditional_t<kSigned, int8_t, uint8_t>>(access);
    case 2:
      return HandlerFor<T, std::conditional_t<kSigned, int16_t, uint16_t>>(access);
    case 4:
      return HandlerFor<T, std::conditional_t<kSigned, int32_t, uint32_t>>(access);
    case 8:
      return HandlerFor<T, std::conditional_t<kSigned, int64_t, uint64_t>>(access);
    default:
      return nullptr;
  }
}

// The type as it lies in memory, which gives the size and the extension.
Handler FindHandler(Access access, ptx::Type type, uint32_t register_bytes) {
  const bool is_signed = ptx::IsSigned(type);
  switch (ptx::SizeBytes(type)) {
    case 1:
      return is_signed ? WithRegister<int8_t>(access, register_bytes)
                       : WithRegister<uint8_t>(access, register_bytes);
    case 2:
      return is_signed ? WithRegister<int16_t>(access, register_bytes)
                       : WithRegister<uint16_t>(access, register_bytes);
    case 4:
      return is_signed ? WithRegister<int32_t>(access, register_bytes)
                       : WithRegister<uint32_t>(access, register_bytes);
    // There is nothing to extend.
    case 8:
      return WithRegister<uint64_t>(access, register_bytes);
    default:
      return nullptr;
  }
}

// Blocks may speak to each other through what is volatile or ordered.
bool MayBeSeenByBlocks(const Instr& in) {
  const auto space = static_cast<ptx::Space>(in.flags & kSpaceMask);
  return (in.flags & (kVolatile | kAcquireRelease)) != 0 &&
         (space == ptx::Space::kGeneric || space == ptx::Space::kGlobal);
}

// The modifiers of ld and st for order, scope and caches. Only the order has an effect: relaxed
// counts as volatile, since a program may spin on it; whatever the scope, everybody sees it.
void TakeOrdering(Op& op, Instr* in) {
  if (op.mods.Take("volatile") || op.mods.Take("relaxed") || op.mods.Take("mmio")) {
    in->flags |= kVolatile;
  }
  if (op.mods.Take("acquire") || op.mods.Take("release")) in->flags |= kVolatile | kAcquireRelease;
  op.mods.TakeOneOf({"cta", "cluster", "gpu", "sys"});
  op.mods.Take("weak");
  op.mods.TakeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  op.mods.TakePrefixed("L1::");
  op.mods.TakePrefixed("L2::");
  op.mods.TakePrefixed("level::");
}

// A generic address when none is named.
ptx::Space TakeSpace(Op& op) {
  if (op.mods.Take("global")) return ptx::Space::kGlobal;
  if (op.mods.Take("shared") || op.mods.Take("shared::cta") || op.mods.Take("shared::cluster")) {
    return ptx::Space::kShared;
  }
  if (op.mods.Take("local")) return ptx::Space::kLocal;
  if (op.mods.Take("const")) return ptx::Space::kConst;
  if (op.mods.Take("param") || op.mods.Take("param::entry") || op.mods.Take("param::func")) {
    return ptx::Space::kParam;
  }
  return ptx::Space::kGeneric;
}

// 0 for .v8, which is not supported.
uint32_t TakeVector(Op& op) {
  if (op.mods.Take("v2")) return 2;
  if (op.mods.Take("v4")) return 4;
  return op.mods.Has("v8") ? 0 : 1;
}

// A kernel's parameter that is named, or a number: no register decides the place.
bool IsParamBlock(const Instr& in) {
  return (in.flags & kSpaceMask) == static_cast<uint8_t>(ptx::Space::kParam) &&
         (in.a & kConstantBit) != 0;
}

}  // namespace

bool DecodeLd(Decoder& decoder, Op& op) {
  Instr in;
  const ptx::Space space = TakeSpace(op);
  TakeOrdering(op, &in);
  op.mods.Take("nc");
  op.mods.Take("unified");
  const uint32_t elements = TakeVector(op);
  const ptx::Type type = op.mods.TakeType();
  const uint32_t size = ptx::SizeBytes(type);
  if (elements == 0 || size == 0 || op.count() < 2 || !op.mods.empty()) return false;
  if (elements > 1 && op[0].parts.size() != elements)
    return decoder.Fail("a vector of another size");
  uint32_t register_bytes = 0;
  Ref to[4] = {};
  if (elements == 1 && op[0].kind != ptx::Operand::kName) return false;
  for (uint32_t k = 0; k < elements; ++k) {
    uint32_t bytes = 0;
    to[k] = decoder.LooseDestination(elements == 1 ? op[0] : op[0].parts[k], size, &bytes);
    const bool sink = elements > 1 && op[0].parts[k].name == "_";
    // All registers of a vector have one size, as one handler serves them.
    if (register_bytes != 0 && bytes != register_bytes && !sink) return false;
    if (register_bytes == 0 || !sink) register_bytes = bytes;
  }
  // The sinks of a vector must be as wide as its registers.
  for (uint32_t k = 0; k < elements; ++k) {
    if (elements > 1 && op[0].parts[k].name == "_") to[k] = decoder.NewRegister(register_bytes);
  }
  if (!decoder.Address(op[1], space, &in)) return false;
  if (MayBeSeenByBlocks(in)) decoder.KeepsOrder();
  in.d = to[0];
  in.e = to[1];
  in.b = to[2];
  in.c = to[3];
  Access access = elements == 1 ? Access::kLoad : elements == 2 ? Access::kLoad2 : Access::kLoad4;
  if (IsParamBlock(in) && elements == 1) {
    access = Access::kLoadParam;
    // Counted from the beginning of the block: LoadParam() reads no address register.
    in.imm += static_cast<int64_t>(decoder.ParamOffset(op[1]));
  }
  return decoder.Emit(FindHandler(access, type, register_bytes), in);
}

// ldu promises that all lanes read the same address: a hint.
bool DecodeLdu(Decoder& decoder, Op& op) { return DecodeLd(decoder, op); }

bool DecodeSt(Decoder& decoder, Op& op) {
  if (op.mods.Take("async")) return DecodeStAsync(decoder, op);
  Instr in;
  const ptx::Space space = TakeSpace(op);
  TakeOrdering(op, &in);
  const uint32_t elements = TakeVector(op);
  const ptx::Type type = op.mods.TakeType();
  if (elements == 0 || ptx::SizeBytes(type) == 0 || op.count() < 2 || !op.mods.empty())
    return false;
  if (elements > 1 && op[1].parts.size() != elements)
    return decoder.Fail("a vector of another size");
  if (!decoder.Address(op[0], space, &in)) return false;
  if (MayBeSeenByBlocks(in)) decoder.KeepsOrder();
  uint32_t register_bytes = 0;
  Ref from[4] = {};
  if (elements == 1) {
    from[0] = decoder.LooseSource(op[1], type, &register_bytes);
  } else {
    // An immediate has no size of its own: it takes that of the other registers.
    for (const ptx::Operand& part : op[1].parts) {
      register_bytes = std::max(register_bytes, decoder.RegisterBytes(part));
    }
    if (register_bytes == 0) register_bytes = std::max(2u, ptx::SizeBytes(type));
    for (uint32_t k = 0; k < elements; ++k) {
      const ptx::Operand& part = op[1].parts[k];
      from[k] = part.kind == ptx::Operand::kFloat ? decoder.Source(part, type)
                                                  : decoder.Source(part, register_bytes);
    }
  }
  in.d = from[0];
  in.e = from[1];
  in.b = from[2];
  in.c = from[3];
  const Access access = elements == 1   ? Access::kStore
                        : elements == 2 ? Access::kStore2
                                        : Access::kStore4;
  return decoder.Emit(FindHandler(access, type, register_bytes), in);
}

}  // namespace gpuloom::softgpu
