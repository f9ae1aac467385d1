// SPDX-License-Identifier: Apache-2.0
// mov and what else moves values between registers.
#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

template <class T>
Handler Copy() {
  return Map1<T, T>([](T a) { return a; });
}

// The bits alone count, so one handler serves all types of a size.
Handler CopyOf(uint32_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return Copy<uint8_t>();
    case 2:
      return Copy<uint16_t>();
    case 4:
      return Copy<uint32_t>();
    case 8:
      return Copy<uint64_t>();
    default:
      return nullptr;
  }
}

// extra: it is negated.
Step MovePredicate(Warp& warp, const Instr& in) {
  const uint32_t bits = warp.Predicate(in.a);
  warp.SetPredicate(in.d, in.extra != 0 ? ~bits : bits);
  return Step::kNext;
}

Step SetConstantPredicate(Warp& warp, const Instr& in) {
  warp.SetPredicate(in.d, in.imm != 0 ? kAllLanes : 0);
  return Step::kNext;
}

// Part `extra` of a wide register, or into one: parts have sizeof(Narrow).
template <class Wide, class Narrow>
Step Unpack(Warp& warp, const Instr& in) {
  const Wide* a = warp.Source<Wide>(in.a);
  const uint32_t shift = in.extra * 8 * sizeof(Narrow);
  return Apply<Narrow>(warp, in, [=](uint32_t i) { return static_cast<Narrow>(a[i] >> shift); });
}

template <class Wide, class Narrow>
Step Pack(Warp& warp, const Instr& in) {
  constexpr uint32_t kParts = sizeof(Wide) / sizeof(Narrow);
  const Ref from[] = {in.a, in.b, in.c, in.e};
  const Narrow* parts[4] = {};
  for (uint32_t k = 0; k < kParts && k < 4; ++k) parts[k] = warp.Source<Narrow>(from[k]);
  return Apply<Wide>(warp, in, [&](uint32_t i) {
    Wide value = 0;
    for (uint32_t k = 0; k < kParts && k < 4; ++k) {
      value = static_cast<Wide>(
          value | static_cast<Wide>(static_cast<Wide>(parts[k][i]) << (k * 8 * sizeof(Narrow))));
    }
    return value;
  });
}

// Null for parts that PTX does not know. Pairs of 32 bits in 64 are the frequent ones, and are
// compiled for each vector level.
Handler PackOf(uint32_t wide, size_t parts, bool pack) {
  if (wide == 4 && parts == 2) return pack ? Pack<uint32_t, uint16_t> : Unpack<uint32_t, uint16_t>;
  if (wide == 8 && parts == 2) {
    return pack ? ForVectors<Pack<uint64_t, uint32_t>>() : ForVectors<Unpack<uint64_t, uint32_t>>();
  }
  if (wide == 8 && parts == 4) return pack ? Pack<uint64_t, uint16_t> : Unpack<uint64_t, uint16_t>;
  if (wide == 2 && parts == 2) return pack ? Pack<uint16_t, uint8_t> : Unpack<uint16_t, uint8_t>;
  if (wide == 4 && parts == 4) return pack ? Pack<uint32_t, uint8_t> : Unpack<uint32_t, uint8_t>;
  return nullptr;
}

// mov.b64 d, {a, b}: the first part becomes the lowest.
bool DecodePack(Decoder& decoder, Op& op, uint32_t size) {
  const std::vector<ptx::Operand>& parts = op[1].parts;
  if (parts.size() != 2 && parts.size() != 4) return false;
  Instr in;
  Ref from[4] = {};
  for (size_t k = 0; k < parts.size(); ++k) {
    from[k] = decoder.Source(parts[k], size / static_cast<uint32_t>(parts.size()));
  }
  in.d = decoder.Destination(op[0], size);
  in.a = from[0];
  in.b = from[1];
  in.c = from[2];
  in.e = from[3];
  return decoder.Emit(PackOf(size, parts.size(), true), in);
}

bool DecodeUnpack(Decoder& decoder, Op& op, uint32_t size) {
  const std::vector<ptx::Operand>& parts = op[0].parts;
  if (parts.size() != 2 && parts.size() != 4) return false;
  // A part may be the source itself, so that is kept first.
  Instr copy;
  copy.d = decoder.NewRegister(size);
  copy.a = decoder.Source(op[1], size);
  if (!decoder.Emit(CopyOf(size), copy)) return false;
  for (size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].name == "_") continue;
    Instr in;
    in.a = copy.d;
    in.d = decoder.Destination(parts[k], size / static_cast<uint32_t>(parts.size()));
    in.extra = static_cast<uint16_t>(k);
    if (!decoder.Emit(PackOf(size, parts.size(), false), in)) return false;
  }
  return true;
}

// extra: the predicate is negated.
template <class T>
Step Select(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  const uint32_t bits = in.extra != 0 ? ~warp.Predicate(in.c) : warp.Predicate(in.c);
  return Apply<T>(warp, in, [=](uint32_t i) { return IsOn(bits, i) ? a[i] : b[i]; });
}

Handler SelectOf(uint32_t size_bytes) {
  switch (size_bytes) {
    case 2:
      return ForVectors<Select<uint16_t>>();
    case 4:
      return ForVectors<Select<uint32_t>>();
    case 8:
      return ForVectors<Select<uint64_t>>();
    default:
      return nullptr;
  }
}

template <class T>
Handler SlctOf(ptx::Type of, bool flush) {
  if (of == ptx::Type::kS32) {
    return Map3<T, T, T, int32_t>([](T a, T b, int32_t c) { return c >= 0 ? a : b; });
  }
  // Not a number selects b, negative zero a, so a flushed negative subnormal too.
  if (flush) {
    return Map3<T, T, T, float>([](T a, T b, float c) { return Flushed(c) >= 0.0f ? a : b; });
  }
  return Map3<T, T, T, float>([](T a, T b, float c) { return c >= 0.0f ? a : b; });
}

// One of the eight bytes of a and b; with bit 3 set, its sign in all bits of the byte.
uint32_t SelectedByte(uint32_t a, uint32_t b, uint32_t selector) {
  const uint64_t bytes = (uint64_t{b} << 32) | a;
  const uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (selector & 7))) & 0xff;
  return selector & 8 ? (byte & 0x80 ? 0xff : 0) : byte;
}

uint32_t Permute(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t result = 0;
  for (uint32_t i = 0; i < 4; ++i) result |= SelectedByte(a, b, (c >> (4 * i)) & 15) << (8 * i);
  return result;
}

struct Permuter {
  uint32_t operator()(uint32_t a, uint32_t b, uint32_t c) const { return Permute(a, b, c); }
};

// The modes of prmt: which selectors the low bits of c stand for.
enum PermuteMode : uint16_t { kDefault, kF4e, kB4e, kRc8, kEcl, kEcr, kRc16 };

Step PermuteByMode(Warp& warp, const Instr& in) {
  const uint32_t* a = warp.Source<uint32_t>(in.a);
  const uint32_t* b = warp.Source<uint32_t>(in.b);
  const uint32_t* c = warp.Source<uint32_t>(in.c);
  // By PermuteMode, then by the low two bits of c.
  static constexpr uint32_t kSelectors[7][4] = {
      {},
      {0x3210, 0x4321, 0x5432, 0x6543},
      {0x5670, 0x6701, 0x7012, 0x0123},
      {0x0000, 0x1111, 0x2222, 0x3333},
      {0x3210, 0x3211, 0x3222, 0x3333},
      {0x0000, 0x1110, 0x2210, 0x3210},
      {0x1010, 0x3232, 0x1010, 0x3232},
  };
  const uint32_t* selectors = kSelectors[in.extra];
  return Apply<uint32_t>(warp, in,
                         [=](uint32_t i) { return Permute(a[i], b[i], selectors[c[i] & 3]); });
}

}  // namespace

bool DecodeMov(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 2) return false;
  Instr in;
  if (type == ptx::Type::kPred) {
    in.d = decoder.DestinationPredicate(op[0]);
    if (op[1].kind == ptx::Operand::kInt) {
      in.imm = op[1].bits != 0;
      return decoder.Emit(SetConstantPredicate, in);
    }
    const PredicateRef from = decoder.SourcePredicate(op[1]);
    in.a = from.number;
    in.extra = from.negated;
    return decoder.Emit(MovePredicate, in);
  }
  const uint32_t size = ptx::SizeBytes(type);
  if (op[1].kind == ptx::Operand::kVector) return DecodePack(decoder, op, size);
  if (op[0].kind == ptx::Operand::kVector) return DecodeUnpack(decoder, op, size);
  // For a variable or a function, Source() gives the address.
  in.a = decoder.Source(op[1], type);
  in.d = decoder.Destination(op[0], size);
  return decoder.Emit(CopyOf(size), in);
}

bool DecodeSelp(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 4) return false;
  Instr in;
  in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], type);
  const PredicateRef by = decoder.SourcePredicate(op[3]);
  in.c = by.number;
  in.extra = by.negated;
  return decoder.Emit(SelectOf(ptx::SizeBytes(type)), in);
}

bool DecodeSlct(Decoder& decoder, Op& op) {
  const bool flush = op.mods.Take("ftz");
  const ptx::Type type = op.mods.TakeType();
  const ptx::Type of = op.mods.TakeType();
  if (op.count() != 4 || (of != ptx::Type::kS32 && of != ptx::Type::kF32)) return false;
  Instr in;
  in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], type);
  in.c = decoder.Source(op[3], of);
  switch (ptx::SizeBytes(type)) {
    case 2:
      return decoder.Emit(SlctOf<uint16_t>(of, flush), in);
    case 4:
      return decoder.Emit(SlctOf<uint32_t>(of, flush), in);
    case 8:
      return decoder.Emit(SlctOf<uint64_t>(of, flush), in);
    default:
      return false;
  }
}

bool DecodePrmt(Decoder& decoder, Op& op) {
  if (!op.mods.Take("b32") || op.count() != 4) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], 4);
  in.b = decoder.Source(op[2], 4);
  in.c = decoder.Source(op[3], 4);
  const std::string_view mode = op.mods.TakeOneOf({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (mode.empty()) {
    return decoder.Emit(Map3<uint32_t, uint32_t, uint32_t, uint32_t>(Permuter()), in);
  }
  in.extra = mode == "f4e"   ? kF4e
             : mode == "b4e" ? kB4e
             : mode == "rc8" ? kRc8
             : mode == "ecl" ? kEcl
             : mode == "ecr" ? kEcr
                             : kRc16;
  return decoder.Emit(PermuteByMode, in);
}

}  // namespace gpuloom::softgpu
