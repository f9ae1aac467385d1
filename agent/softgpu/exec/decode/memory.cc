// SPDX-License-Identifier: Apache-2.0
// Loads, stores and addresses.
#include <atomic>

#include "agent/softgpu/exec/decode/bulk.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/block.h"
#include "agent/softgpu/exec/machine/fence.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

// T: as it lies in memory, which says how it is extended; R: the register's value.
template <class T, class R>
Step Load(Warp& warp, const Instr& in) {
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), false, &at)) return Step::kFault;
  R* d = warp.Destination<R>(in.d);
  if (at.contiguous) {
    if constexpr (sizeof(T) == sizeof(R)) {
      std::memcpy(d, at.lane[0], sizeof(R) * kLanes);
    } else {
      for (uint32_t i = 0; i < kLanes; ++i) {
        T value;
        std::memcpy(&value, at.lane[0] + i * sizeof(T), sizeof(T));
        d[i] = static_cast<R>(value);
      }
    }
  } else if (warp.exec == kAllLanes) {
    for (uint32_t i = 0; i < kLanes; ++i) {
      T value;
      std::memcpy(&value, at.lane[i], sizeof(T));
      d[i] = static_cast<R>(value);
    }
  } else {
    ForEach(warp.exec, [&](uint32_t i) {
      T value;
      std::memcpy(&value, at.lane[i], sizeof(T));
      d[i] = static_cast<R>(value);
    });
  }
  if (in.flags & (kVolatile | kAcquireRelease)) {
    warp.Waited();
    if (in.flags & kAcquireRelease) Fence();
  }
  return Step::kNext;
}

// extra: number of elements; their registers are d, e, b, c.
template <class T, class R>
Step LoadVector(Warp& warp, const Instr& in) {
  Pointers at;
  const uint32_t stride = in.extra * static_cast<uint32_t>(sizeof(T));
  if (!warp.Resolve(in, stride, false, &at)) return Step::kFault;
  const Ref to[] = {in.d, in.e, in.b, in.c};
  for (uint32_t k = 0; k < in.extra; ++k) {
    R* d = warp.Destination<R>(to[k]);
    ForEach(warp.exec, [&](uint32_t i) {
      const std::byte* from = at.contiguous ? at.lane[0] + size_t{i} * stride : at.lane[i];
      T value;
      std::memcpy(&value, from + k * sizeof(T), sizeof(T));
      d[i] = static_cast<R>(value);
    });
  }
  if (in.flags & kVolatile) warp.Waited();
  if (in.flags & kAcquireRelease) Fence();
  return Step::kNext;
}

// A kernel's parameter at a fixed place is the same for all lanes.
template <class T, class R>
Step LoadParam(Warp& warp, const Instr& in) {
  const std::vector<std::byte>& params = warp.block().run().params;
  T value;
  if (static_cast<uint64_t>(in.imm) + sizeof(T) > params.size()) {
    return warp.Fault(Outcome::kIllegalAddress, static_cast<uint64_t>(in.imm),
                      "a parameter outside of the parameter block");
  }
  std::memcpy(&value, params.data() + in.imm, sizeof(T));
  const R wide = static_cast<R>(value);
  return Apply<R>(warp, in, [=](uint32_t) { return wide; });
}

template <class T, class R>
Step Store(Warp& warp, const Instr& in) {
  if (in.flags & kAcquireRelease) Fence();
  Pointers at;
  if (!warp.Resolve(in, sizeof(T), true, &at)) return Step::kFault;
  const R* d = warp.Source<R>(in.d);
  if (at.contiguous) {
    if constexpr (sizeof(T) == sizeof(R)) {
      std::memcpy(at.lane[0], d, sizeof(R) * kLanes);
    } else {
      for (uint32_t i = 0; i < kLanes; ++i) {
        const T value = static_cast<T>(d[i]);
        std::memcpy(at.lane[0] + i * sizeof(T), &value, sizeof(T));
      }
    }
  } else {
    ForEach(warp.exec, [&](uint32_t i) {
      const T value = static_cast<T>(d[i]);
      std::memcpy(at.lane[i], &value, sizeof(T));
    });
  }
  return Step::kNext;
}

template <class T, class R>
Step StoreVector(Warp& warp, const Instr& in) {
  if (in.flags & kAcquireRelease) Fence();
  Pointers at;
  const uint32_t stride = in.extra * static_cast<uint32_t>(sizeof(T));
  if (!warp.Resolve(in, stride, true, &at)) return Step::kFault;
  const Ref from[] = {in.d, in.e, in.b, in.c};
  for (uint32_t k = 0; k < in.extra; ++k) {
    const R* d = warp.Source<R>(from[k]);
    ForEach(warp.exec, [&](uint32_t i) {
      std::byte* to = at.contiguous ? at.lane[0] + size_t{i} * stride : at.lane[i];
      const T value = static_cast<T>(d[i]);
      std::memcpy(to + k * sizeof(T), &value, sizeof(T));
    });
  }
  return Step::kNext;
}

enum class Access { kLoad, kLoadVector, kLoadParam, kStore, kStoreVector };

template <class T, class R>
Handler HandlerFor(Access access) {
  switch (access) {
    case Access::kLoad:
      return Load<T, R>;
    case Access::kLoadVector:
      return LoadVector<T, R>;
    case Access::kLoadParam:
      return LoadParam<T, R>;
    case Access::kStore:
      return Store<T, R>;
    case Access::kStoreVector:
      return StoreVector<T, R>;
  }
  return nullptr;
}

template <class T>
Handler WithRegister(Access access, uint32_t register_bytes) {
  // Loads extend as the type says, so the register takes its sign.
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
    case 8:
      return WithRegister<uint64_t>(access, register_bytes);
    default:
      return nullptr;
  }
}

// Hints about caches and ordering that ld and st share. False: one that is not supported.
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

uint32_t TakeVector(Op& op) {
  if (op.mods.Take("v2")) return 2;
  if (op.mods.Take("v4")) return 4;
  return op.mods.Has("v8") ? 0 : 1;
}

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
    if (register_bytes != 0 && bytes != register_bytes && !sink) return false;
    if (register_bytes == 0 || !sink) register_bytes = bytes;
  }
  // The sinks of a vector must be as wide as its registers.
  for (uint32_t k = 0; k < elements; ++k) {
    if (elements > 1 && op[0].parts[k].name == "_") to[k] = decoder.NewRegister(register_bytes);
  }
  if (!decoder.Address(op[1], space, &in)) return false;
  in.d = to[0];
  in.e = to[1];
  in.b = to[2];
  in.c = to[3];
  in.extra = static_cast<uint16_t>(elements);
  Access access = elements == 1 ? Access::kLoad : Access::kLoadVector;
  if (IsParamBlock(in) && elements == 1) {
    access = Access::kLoadParam;
    in.imm += static_cast<int64_t>(decoder.ParamOffset(op[1]));
  }
  return decoder.Emit(FindHandler(access, type, register_bytes), in);
}

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
  uint32_t register_bytes = 0;
  Ref from[4] = {};
  if (elements == 1) {
    from[0] = decoder.LooseSource(op[1], type, &register_bytes);
  } else {
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
  in.extra = static_cast<uint16_t>(elements);
  const Access access = elements == 1 ? Access::kStore : Access::kStoreVector;
  return decoder.Emit(FindHandler(access, type, register_bytes), in);
}

}  // namespace gpuloom::softgpu
