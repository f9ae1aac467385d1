// SPDX-License-Identifier: Apache-2.0
// cvt. The frequent conversions have handlers of their own; the others go through Convert().
#include "agent/softgpu/exec/machine/convert.h"

#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// Instr::imm of the general handler: a Conversion and the size of the source's register in 23 bits.
constexpr uint32_t kToShift = 0, kFromShift = 5, kRoundShift = 10, kFlagShift = 13, kSizeShift = 19;

int64_t Pack(const Conversion& how, uint32_t source_bytes) {
  uint32_t bits = static_cast<uint32_t>(how.to) << kToShift |
                  static_cast<uint32_t>(how.from) << kFromShift |
                  static_cast<uint32_t>(how.round) << kRoundShift | source_bytes << kSizeShift;
  bits |= static_cast<uint32_t>(how.to_integral) << kFlagShift;
  bits |= static_cast<uint32_t>(how.flush) << (kFlagShift + 1);
  bits |= static_cast<uint32_t>(how.saturate) << (kFlagShift + 2);
  bits |= static_cast<uint32_t>(how.relu) << (kFlagShift + 3);
  bits |= static_cast<uint32_t>(how.tf32) << (kFlagShift + 4);
  bits |= static_cast<uint32_t>(how.finite) << (kFlagShift + 5);
  return bits;
}

Conversion Unpack(int64_t imm, uint32_t* source_bytes) {
  const auto bits = static_cast<uint32_t>(imm);
  Conversion how;
  how.to = static_cast<ptx::Type>(bits >> kToShift & 31);
  how.from = static_cast<ptx::Type>(bits >> kFromShift & 31);
  how.round = static_cast<Round>(bits >> kRoundShift & 7);
  how.to_integral = bits >> kFlagShift & 1;
  how.flush = bits >> (kFlagShift + 1) & 1;
  how.saturate = bits >> (kFlagShift + 2) & 1;
  how.relu = bits >> (kFlagShift + 3) & 1;
  how.tf32 = bits >> (kFlagShift + 4) & 1;
  how.finite = bits >> (kFlagShift + 5) & 1;
  *source_bytes = bits >> kSizeShift & 15;
  return how;
}

// Whatever has no handler of its own: lane by lane, the Conversion read once.
template <class D>
Step General(Warp& warp, const Instr& in) {
  uint32_t source_bytes = 0;
  const Conversion how = Unpack(in.imm, &source_bytes);
  return ApplyEach<D>(warp, in, [&](uint32_t i) {
    return static_cast<D>(Convert(how, warp.SourceBits(in.a, source_bytes, i)));
  });
}

Handler GeneralOf(uint32_t size_bytes) {
  switch (size_bytes) {
    case 1:
      return General<uint8_t>;
    case 2:
      return General<uint16_t>;
    case 4:
      return General<uint32_t>;
    case 8:
      return General<uint64_t>;
    default:
      return nullptr;
  }
}

// Integers: the low bits of register R, extended according to N into register W.
template <class R, class N>
Handler NarrowInto(uint32_t size_bytes) {
  switch (size_bytes) {
    case 2:
      return Map1<uint16_t, R>([](R a) { return static_cast<N>(a); });
    case 4:
      return Map1<uint32_t, R>([](R a) { return static_cast<N>(a); });
    case 8:
      return Map1<uint64_t, R>([](R a) { return static_cast<N>(a); });
    default:
      return nullptr;
  }
}

template <class R>
Handler NarrowFrom(ptx::Type by, uint32_t size_bytes) {
  switch (by) {
    case ptx::Type::kU8:
      return NarrowInto<R, uint8_t>(size_bytes);
    case ptx::Type::kS8:
      return NarrowInto<R, int8_t>(size_bytes);
    case ptx::Type::kU16:
      return NarrowInto<R, uint16_t>(size_bytes);
    case ptx::Type::kS16:
      return NarrowInto<R, int16_t>(size_bytes);
    case ptx::Type::kU32:
      return NarrowInto<R, uint32_t>(size_bytes);
    case ptx::Type::kS32:
      return NarrowInto<R, int32_t>(size_bytes);
    case ptx::Type::kU64:
    case ptx::Type::kS64:
      return NarrowInto<R, uint64_t>(size_bytes);
    default:
      return nullptr;
  }
}

// Narrowing takes the low bits and extends them as the result's type says; both are one cast.
Handler FindInteger(const Conversion& how, uint32_t source_bytes, uint32_t result_bytes) {
  if (how.saturate) return nullptr;
  const uint32_t to = ptx::SizeBytes(how.to);
  const uint32_t from = ptx::SizeBytes(how.from);
  // Widening extends as the source's type says, which is enough unless the register is wider yet.
  if (to > from && result_bytes > to) return nullptr;
  const ptx::Type by = to > from ? how.from : how.to;
  if (source_bytes == 2) return NarrowFrom<uint16_t>(by, result_bytes);
  if (source_bytes == 4) return NarrowFrom<uint32_t>(by, result_bytes);
  if (source_bytes == 8) return NarrowFrom<uint64_t>(by, result_bytes);
  return nullptr;
}

template <class T>
Handler FloatFrom(ptx::Type from) {
  switch (from) {
    case ptx::Type::kS16:
      return Map1<T, int16_t>([](int16_t a) { return static_cast<T>(a); });
    case ptx::Type::kU16:
      return Map1<T, uint16_t>([](uint16_t a) { return static_cast<T>(a); });
    case ptx::Type::kS32:
      return Map1<T, int32_t>([](int32_t a) { return static_cast<T>(a); });
    case ptx::Type::kU32:
      return Map1<T, uint32_t>([](uint32_t a) { return static_cast<T>(a); });
    case ptx::Type::kS64:
      return Map1<T, int64_t>([](int64_t a) { return static_cast<T>(a); });
    case ptx::Type::kU64:
      return Map1<T, uint64_t>([](uint64_t a) { return static_cast<T>(a); });
    default:
      return nullptr;
  }
}

template <Round kRound>
double Whole(double value) {
  if constexpr (kRound == Round::kZero) return std::trunc(value);
  if constexpr (kRound == Round::kDown) return std::floor(value);
  if constexpr (kRound == Round::kUp) return std::ceil(value);
  return std::nearbyint(value);
}

// As Convert() does it: out of range the nearest integer there is, and of a not-a-number 0 in 32
// bits from single precision, else the lowest number.
template <class To, class From, Round kRound>
To ToInteger(From a) {
  using Limits = std::numeric_limits<To>;
  constexpr bool kWide = sizeof(To) == 8 || sizeof(From) == 8;
  constexpr auto kLowest = static_cast<double>(Limits::lowest());
  constexpr auto kHighest = static_cast<double>(Limits::max());  // 64 bits: one more than that
  constexpr To kOfNan = kWide ? static_cast<To>(uint64_t{1} << (8 * sizeof(To) - 1)) : To{0};
  const double whole = Whole<kRound>(static_cast<double>(a));
  const bool inside = whole > kLowest && whole < kHighest;
  const To outside = whole <= kLowest ? Limits::lowest() : Limits::max();
  // Outside, the cast itself would be undefined in C++, even with its result unused.
  const To result = inside ? static_cast<To>(inside ? whole : 0.0) : outside;
  return a != a ? kOfNan : result;
}

// A whole number in the same format; of not-a-numbers single precision has one.
template <class T, Round kRound>
T ToIntegral(T a) {
  if constexpr (sizeof(T) == 4) {
    return Canonical(static_cast<float>(Whole<kRound>(static_cast<double>(a))));
  } else {
    return a != a ? a : Whole<kRound>(a);
  }
}

template <class From, Round kRound>
Handler WholeOf(ptx::Type to) {
  switch (to) {
    case ptx::Type::kS32:
      return Map1<int32_t, From>([](From a) { return ToInteger<int32_t, From, kRound>(a); });
    case ptx::Type::kU32:
      return Map1<uint32_t, From>([](From a) { return ToInteger<uint32_t, From, kRound>(a); });
    case ptx::Type::kS64:
      return Map1<int64_t, From>([](From a) { return ToInteger<int64_t, From, kRound>(a); });
    case ptx::Type::kU64:
      return Map1<uint64_t, From>([](From a) { return ToInteger<uint64_t, From, kRound>(a); });
    case ptx::Type::kF32:
    case ptx::Type::kF64: {
      const bool same = sizeof(From) == ptx::SizeBytes(to);
      return same ? Map1<From, From>([](From a) { return ToIntegral<From, kRound>(a); }) : nullptr;
    }
    default:
      return nullptr;
  }
}

template <class From>
Handler WholeOf(ptx::Type to, Round round) {
  switch (round) {
    case Round::kNearest:
      return WholeOf<From, Round::kNearest>(to);
    case Round::kZero:
      return WholeOf<From, Round::kZero>(to);
    case Round::kDown:
      return WholeOf<From, Round::kDown>(to);
    case Round::kUp:
      return WholeOf<From, Round::kUp>(to);
    case Round::kNearestAway:
      break;
  }
  return nullptr;
}

// The upper bits of a not-a-number stay.
float ToFloat32(double a) {
  const uint64_t bits = std::bit_cast<uint64_t>(a);
  const auto of_nan = static_cast<uint32_t>(bits >> 32 & 0x80000000u) | 0x7fc00000u |
                      (static_cast<uint32_t>(bits >> 29) & 0x3fffffu);
  const auto result = std::bit_cast<uint32_t>(static_cast<float>(a));
  return std::bit_cast<float>(a != a ? of_nan : result);
}

// Null: the general way. What is here must give the same bits as Convert().
Handler FindFast(const Conversion& how, uint32_t source_bytes, uint32_t result_bytes) {
  if (!ptx::IsFloat(how.from) && !ptx::IsFloat(how.to)) {
    return FindInteger(how, source_bytes, result_bytes);
  }
  if (how.saturate && how.to == ptx::Type::kF32 && how.from == ptx::Type::kF32 && !how.relu &&
      !how.to_integral && source_bytes == 4 && result_bytes == 4) {
    const auto into = [](float a) { return a > 0 ? (a < 1 ? a : 1.0f) : 0.0f; };
    using Into = std::remove_const_t<decltype(into)>;
    return how.flush ? Map1<float, float>([](float a) { return Into{}(Flushed(a)); })
                     : Map1<float, float>([](float a) { return Into{}(a); });
  }
  if (how.saturate || how.relu || how.finite || result_bytes != ptx::SizeBytes(how.to)) {
    return nullptr;
  }
  // An 8-bit source lies in a register of 16.
  if (source_bytes == 2 && how.from == ptx::Type::kU8 && how.to == ptx::Type::kF32 &&
      how.round == Round::kNearest) {
    return Map1<float, uint16_t>([](uint16_t a) { return static_cast<float>(a & 0xff); });
  }
  if (source_bytes != ptx::SizeBytes(how.from)) return nullptr;
  // What would be flushed rounds to zero in any case, except when it is rounded up or down.
  const bool away = how.round == Round::kUp || how.round == Round::kDown;
  if (how.to_integral && !(how.flush && away)) {
    if (how.from == ptx::Type::kF32) return WholeOf<float>(how.to, how.round);
    if (how.from == ptx::Type::kF64) return WholeOf<double>(how.to, how.round);
  }
  // From here on only rounding to the nearest, as the C++ conversions do it.
  if (how.round != Round::kNearest || how.flush || how.to_integral) return nullptr;
  if (how.to == ptx::Type::kF32 && how.from == ptx::Type::kF64) {
    return Map1<float, double>([](double a) { return ToFloat32(a); });
  }
  if (how.to == ptx::Type::kF64 && how.from == ptx::Type::kF32) {
    return Map1<double, float>([](float a) { return static_cast<double>(a); });
  }
  if (how.to == ptx::Type::kF32) return FloatFrom<float>(how.from);
  if (how.to == ptx::Type::kF64) return FloatFrom<double>(how.from);
  return nullptr;
}

// False when there is none. The names that end in i round to a whole number.
bool TakeRounding(Op& op, Conversion* how) {
  const std::string_view round =
      op.mods.TakeOneOf({"rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi"});
  how->to_integral = round.size() == 3 && round[2] == 'i';
  if (round == "rna")
    how->round = Round::kNearestAway;
  else if (round.starts_with("rz"))
    how->round = Round::kZero;
  else if (round.starts_with("rm"))
    how->round = Round::kDown;
  else if (round.starts_with("rp"))
    how->round = Round::kUp;
  return !round.empty();
}

// cvt.rn.f16x2.f32 d, a, b: a becomes the upper half.
bool DecodePair(Decoder& decoder, Op& op, Conversion how) {
  how.to = how.to == ptx::Type::kF16x2 ? ptx::Type::kF16 : ptx::Type::kBf16;
  if (how.from != ptx::Type::kF32 || op.count() != 3) return false;
  Ref halves[2] = {};
  for (size_t k = 0; k < 2; ++k) {
    Instr in;
    in.a = decoder.Source(op[2 - k], ptx::Type::kF32);
    in.d = halves[k] = decoder.NewRegister(2);
    // Each half by itself, then both put together.
    in.imm = Pack(how, 4);
    if (!decoder.Emit(GeneralOf(2), in)) return false;
  }
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = halves[0];
  in.b = halves[1];
  return decoder.Emit(Map2<uint32_t, uint16_t, uint16_t>([](uint16_t low, uint16_t high) {
                        return (static_cast<uint32_t>(high) << 16) | low;
                      }),
                      in);
}

// Whether a rounding modifier stands where PTX wants one. Between formats of one size it is
// optional.
bool CheckRounding(const Conversion& how, bool given) {
  const bool from_float = ptx::IsFloat(how.from);
  const bool to_float = ptx::IsFloat(how.to);
  if (!from_float && !to_float) return !given;
  if (from_float && !to_float) return how.to_integral;
  if (!from_float) return given && !how.to_integral;
  const bool narrows = ptx::SizeBytes(how.to) < ptx::SizeBytes(how.from);
  const bool widens = ptx::SizeBytes(how.to) > ptx::SizeBytes(how.from);
  if (widens) return !given || !how.to_integral;
  return !narrows || given;
}

}  // namespace

bool DecodeCvt(Decoder& decoder, Op& op) {
  if (op.mods.Take("pack")) return DecodeCvtPack(decoder, op);
  // Their sources and results are packed pairs: they are not types of a register.
  for (const char* eighth : {"e4m3x2", "e5m2x2"}) {
    if (op.mods.Has(eighth)) return DecodeCvtEighth(decoder, op);
  }
  Conversion how;
  const bool rounds = TakeRounding(op, &how);
  how.flush = op.mods.Take("ftz");
  how.saturate = op.mods.Take("sat");
  how.relu = op.mods.Take("relu");
  how.finite = op.mods.Take("satfinite");
  how.tf32 = op.mods.Take("tf32");
  Instr in;
  if (how.tf32) {
    if (op.mods.TakeType() != ptx::Type::kF32 || !rounds || how.to_integral) return false;
    // As bits: Convert() does not look at the types of a tf32.
    how.to = how.from = ptx::Type::kB32;
    if (!Operands(decoder, op, 4, 1, &in)) return false;
    in.imm = Pack(how, 4);
    return decoder.Emit(GeneralOf(4), in);
  }
  how.to = op.mods.TakeType();
  how.from = op.mods.TakeType();
  if (how.round == Round::kNearestAway) return false;
  // Only formats of 16 bits have .satfinite.
  const auto is_narrow = [](ptx::Type t) { return ptx::IsFloat(t) && ptx::SizeBytes(t) == 2; };
  if (how.finite && !is_narrow(how.to) && how.to != ptx::Type::kF16x2 &&
      how.to != ptx::Type::kBf16x2) {
    return false;
  }
  if (how.to == ptx::Type::kF16x2 || how.to == ptx::Type::kBf16x2) {
    return rounds && !how.to_integral && DecodePair(decoder, op, how);
  }
  const auto allowed = [](ptx::Type t) {
    return !ptx::IsBits(t) && t != ptx::Type::kPred && t != ptx::Type::kNone &&
           t != ptx::Type::kF16x2 && t != ptx::Type::kBf16x2;
  };
  if (!allowed(how.to) || !allowed(how.from) || !CheckRounding(how, rounds)) return false;
  if (op.count() != 2) return false;
  uint32_t source_bytes = 0;
  uint32_t result_bytes = 0;
  in.a = decoder.LooseSource(op[1], how.from, &source_bytes);
  in.d = decoder.LooseDestination(op[0], ptx::SizeBytes(how.to), &result_bytes);
  in.imm = Pack(how, source_bytes);
  const Handler fast = FindFast(how, source_bytes, result_bytes);
  return decoder.Emit(fast != nullptr ? fast : GeneralOf(result_bytes), in);
}

}  // namespace gpuloom::softgpu
