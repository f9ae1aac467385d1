// SPDX-License-Identifier: Apache-2.0
// Bits: logic, shifts, fields and counts.
#include <bit>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/integer.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

using U = uint32_t;

// Calls f with a value of the unsigned type of that size.
template <class F>
Handler ForBits(uint32_t size_bytes, F f) {
  switch (size_bytes) {
    case 2:
      return f(uint16_t{});
    case 4:
      return f(uint32_t{});
    case 8:
      return f(uint64_t{});
    default:
      return nullptr;
  }
}

// extra: the operation in the lowest two bits (and, or, xor, not of a); 4 and 8: a or b is negated.
Step LogicPredicate(Warp& warp, const Instr& in) {
  const U a = in.extra & 4 ? ~warp.Predicate(in.a) : warp.Predicate(in.a);
  const U b = in.extra & 8 ? ~warp.Predicate(in.b) : warp.Predicate(in.b);
  const U kind = in.extra & 3;
  warp.SetPredicate(in.d, kind == 0 ? a & b : kind == 1 ? a | b : kind == 2 ? a ^ b : ~a);
  return Step::kNext;
}

// Logic of predicates; `kind` is the operation's number in LogicPredicate().
bool DecodeLogicPredicate(Decoder& decoder, Op& op, U kind) {
  Instr in;
  in.extra = static_cast<uint16_t>(kind);
  if (op.count() != (kind == 3 ? 2u : 3u)) return false;
  in.d = decoder.DestinationPredicate(op[0]);
  const PredicateRef a = decoder.SourcePredicate(op[1]);
  const PredicateRef b = kind == 3 ? a : decoder.SourcePredicate(op[2]);
  in.a = a.number;
  in.b = b.number;
  if (a.negated) in.extra |= 4;
  if (b.negated) in.extra |= 8;
  return decoder.Emit(LogicPredicate, in);
}

// Bit i of the table is the result for the three bits of i.
U Lop3(U a, U b, U c, U table) {
  U result = 0;
  for (U i = 0; i < 8; ++i) {
    const U wanted = 0 - ((table >> i) & 1);
    result |= wanted & (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
  }
  return result;
}

Step Lop3Lanes(Warp& warp, const Instr& in) {
  const U* a = warp.Source<U>(in.a);
  const U* b = warp.Source<U>(in.b);
  const U* c = warp.Source<U>(in.c);
  const U table = in.extra;
  return Apply<U>(warp, in, [=](uint32_t i) { return Lop3(a[i], b[i], c[i], table); });
}

// lop3.BoolOp: d|p = …, p = (d != 0) op q.  e: predicate to write, imm: q and its negation and op.
Step Lop3Predicate(Warp& warp, const Instr& in) {
  const Step step = Lop3Lanes(warp, in);
  // The new value. In lanes that are off it is the old one, and SetPredicate() leaves their bits
  // alone.
  const U* d = warp.Source<U>(in.d);
  U bits = 0;
  for (U i = 0; i < kLanes; ++i) bits |= (d[i] != 0 ? 1u : 0u) << i;
  U q = warp.Predicate(static_cast<U>(in.imm));
  if (in.flags & 1) q = ~q;
  warp.SetPredicate(in.e, in.flags & 2 ? bits & q : bits | q);
  return step;
}

// C++ leaves shifts by the width or more undefined. PTX gives 0 for them, or for signed numbers the
// sign.
template <class T>
T ShiftLeft(T a, U b) {
  return b < 8 * sizeof(T) ? static_cast<T>(static_cast<uint64_t>(a) << b) : T{0};
}
template <class T>
T ShiftRight(T a, U b) {
  constexpr U kBits = 8 * sizeof(T);
  if (b >= kBits) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> b);
}

// shf: 32 bits of the two words together, the low one in `low`.
U Funnel(U low, U high, U shift, bool left) {
  const uint64_t both = (uint64_t{high} << 32) | low;
  return static_cast<U>(left ? (both << shift) >> 32 : both >> shift);
}

template <bool kLeft, bool kClamp>
Handler FunnelOf() {
  return Map3<U, U, U, U>([](U a, U b, U c) {
    // A clamped shift by 32 moves one word into the other's place.
    if (kClamp && c >= 32) return kLeft ? a : b;
    return Funnel(a, b, c & 31, kLeft);
  });
}

// Position of the highest bit that counts: of a negative number, of its complement.
template <class T>
U FindHigh(T a, bool as_shift) {
  Unsigned<T> bits = static_cast<Unsigned<T>>(a);
  if constexpr (std::is_signed_v<T>) {
    if (a < 0) bits = static_cast<Unsigned<T>>(~bits);
  }
  if (bits == 0) return 0xffffffffu;
  const U position = 8 * sizeof(T) - 1 - static_cast<U>(std::countl_zero(bits));
  return as_shift ? 8 * sizeof(T) - 1 - position : position;
}

// fns: the |offset|-th set bit of mask from `base`, upward, downward, or base itself for 0.
U FindNth(U mask, U base, int32_t offset) {
  if (base > 31) return 0xffffffffu;
  if (offset == 0) return (mask >> base) & 1 ? base : 0xffffffffu;
  int64_t left = offset > 0 ? int64_t{offset} : -int64_t{offset};
  for (int64_t at = base; at >= 0 && at<32; at += offset> 0 ? 1 : -1) {
    if ((mask >> at) & 1 && --left == 0) return static_cast<U>(at);
  }
  return 0xffffffffu;
}

template <class T>
T Reverse(T a) {
  T result = 0;
  for (U i = 0; i < 8 * sizeof(T); ++i) {
    result = static_cast<T>(result << 1) | (a & 1);
    a >>= 1;
  }
  return result;
}

// bfe: position and length are bytes. What lies beyond the highest bit is the sign, or 0 of
// unsigned numbers.
template <class T>
T ExtractField(T a, U b, U c) {
  constexpr U kBits = 8 * sizeof(T);
  using N = Unsigned<T>;
  const U position = b & 0xff;
  const U length = c & 0xff;
  if (length == 0) return 0;
  const N bits = static_cast<N>(a);
  N field = position < kBits ? bits >> position : N{0};
  if constexpr (std::is_signed_v<T>) {
    // The field's highest bit is its sign; of a field that reaches beyond the number, the number's.
    const U top = position + length - 1 < kBits ? position + length - 1 : kBits - 1;
    const bool negative = (bits >> top) & 1;
    const U have = position >= kBits ? 0 : (length < kBits - position ? length : kBits - position);
    if (have < kBits) {
      const N mask = have == 0 ? N{0} : static_cast<N>(~N{0}) >> (kBits - have);
      field = negative ? (field & mask) | ~mask : field & mask;
    }
  } else if (length < kBits) {
    field &= (N{1} << length) - 1;
  }
  return static_cast<T>(field);
}

// bfi: the low bits of a, at a position in b.
template <class T>
T InsertField(T a, T b, U c, U d) {
  constexpr U kBits = 8 * sizeof(T);
  const U position = c & 0xff;
  const U length = d & 0xff;
  if (length == 0 || position >= kBits) return b;
  T mask = length >= kBits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << length) - 1);
  mask = static_cast<T>(mask << position);
  return static_cast<T>((b & ~mask) | (static_cast<T>(a << position) & mask));
}

// bmsk: b ones from bit a on. Without .wrap, ones beyond bit 31 are lost.
U MakeMask(U a, U b, bool wrap) {
  if (wrap) {
    a &= 31;
    b &= 31;
  }
  if (a > 31 || b == 0) return 0;
  const U ones = b >= 32 ? 0xffffffffu : (1u << b) - 1;
  return ones << a;
}

// szext: the low b bits, extended as the type says.
template <class T>
T Extend(T a, U b, bool wrap) {
  if (wrap) b &= 31;
  if (b == 0) return 0;
  if (b >= 32) return a;
  const U shift = 32 - b;
  return static_cast<T>(static_cast<T>(static_cast<U>(a) << shift) >> shift);
}

}  // namespace

bool DecodeLogic(Decoder& decoder, Op& op) {
  const std::string_view name = op.mods.name();
  const ptx::Type type = op.mods.TakeType();
  if (type == ptx::Type::kPred) {
    return DecodeLogicPredicate(decoder, op, name == "and" ? 0 : name == "or" ? 1 : 2);
  }
  Instr in;
  if (!ptx::IsBits(type) || !Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [&](auto x) {
                                using T = decltype(x);
                                if (name == "and")
                                  return Map2<T, T, T>([](T a, T b) { return a & b; });
                                if (name == "or")
                                  return Map2<T, T, T>([](T a, T b) { return a | b; });
                                return Map2<T, T, T>([](T a, T b) { return a ^ b; });
                              }),
                      in);
}

bool DecodeNot(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  if (type == ptx::Type::kPred) return DecodeLogicPredicate(decoder, op, 3);
  Instr in;
  if (!ptx::IsBits(type) || !Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [](auto x) {
                                using T = decltype(x);
                                return Map1<T, T>([](T a) { return ~a; });
                              }),
                      in);
}

bool DecodeCnot(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (!ptx::IsBits(type) || !Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [](auto x) {
                                using T = decltype(x);
                                return Map1<T, T>([](T a) { return a == 0 ? 1 : 0; });
                              }),
                      in);
}

bool DecodeLop3(Decoder& decoder, Op& op) {
  const std::string_view combine = op.mods.TakeOneOf({"and", "or"});
  if (!op.mods.Take("b32") || op.count() != (combine.empty() ? 5u : 6u)) return false;
  // One bit for each of the eight combinations.
  if (op[4].kind != ptx::Operand::kInt || op[4].bits > 255) return false;
  Instr in;
  in.a = decoder.Source(op[1], 4);
  in.b = decoder.Source(op[2], 4);
  in.c = decoder.Source(op[3], 4);
  in.extra = static_cast<uint16_t>(op[4].bits);
  if (combine.empty()) {
    in.d = decoder.Destination(op[0], 4);
    return decoder.Emit(ForVectors<Lop3Lanes>(), in);
  }
  if (op[0].kind != ptx::Operand::kPair) return false;
  in.d = decoder.Destination(op[0].parts[0], 4);
  in.e = decoder.DestinationPredicate(op[0].parts[1]);
  const PredicateRef q = decoder.SourcePredicate(op[5]);
  in.imm = q.number;
  in.flags = static_cast<uint8_t>((q.negated ? 1 : 0) | (combine == "and" ? 2 : 0));
  return decoder.Emit(Lop3Predicate, in);
}

bool DecodeShift(Decoder& decoder, Op& op) {
  const bool left = op.mods.name() == "shl";
  // shl has untyped forms only; shr tells arithmetic from logic shifts by the type.
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 3 || ptx::IsFloat(type) || (left && !ptx::IsBits(type))) return false;
  Instr in;
  in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], 4);
  return decoder.Emit(
      ForInteger(type,
                 [&](auto x) {
                   using T = decltype(x);
                   return left ? Map2<T, T, U>([](T a, U b) { return ShiftLeft(a, b); })
                               : Map2<T, T, U>([](T a, U b) { return ShiftRight(a, b); });
                 }),
      in);
}

bool DecodeShf(Decoder& decoder, Op& op) {
  const std::string_view way = op.mods.TakeOneOf({"l", "r"});
  const std::string_view mode = op.mods.TakeOneOf({"clamp", "wrap"});
  Instr in;
  if (way.empty() || mode.empty() || !op.mods.Take("b32")) return false;
  if (!Operands(decoder, op, 4, 3, &in)) return false;
  if (way == "l")
    return decoder.Emit(mode == "wrap" ? FunnelOf<true, false>() : FunnelOf<true, true>(), in);
  return decoder.Emit(mode == "wrap" ? FunnelOf<false, false>() : FunnelOf<false, true>(), in);
}

bool DecodeCount(Decoder& decoder, Op& op) {
  const bool ones = op.mods.name() == "popc";
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 2 || (type != ptx::Type::kB32 && type != ptx::Type::kB64)) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], type);
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [&](auto x) {
                                using T = decltype(x);
                                return ones ? Map1<U, T>([](T a) { return std::popcount(a); })
                                            : Map1<U, T>([](T a) { return std::countl_zero(a); });
                              }),
                      in);
}

bool DecodeBfind(Decoder& decoder, Op& op) {
  const bool shift = op.mods.Take("shiftamt");
  const ptx::Type type = op.mods.TakeType();
  const uint32_t size = ptx::SizeBytes(type);
  if (op.count() != 2 || size < 4 || ptx::IsBits(type) || ptx::IsFloat(type)) return false;
  Instr in;
  in.d = decoder.Destination(op[0], 4);
  in.a = decoder.Source(op[1], type);
  return decoder.Emit(ForInteger(type,
                                 [&](auto x) {
                                   using T = decltype(x);
                                   return shift
                                              ? Map1<U, T>([](T a) { return FindHigh(a, true); })
                                              : Map1<U, T>([](T a) { return FindHigh(a, false); });
                                 }),
                      in);
}

bool DecodeFns(Decoder& decoder, Op& op) {
  Instr in;
  if (!op.mods.Take("b32") || !Operands(decoder, op, 4, 3, &in)) return false;
  return decoder.Emit(Map3<U, U, U, int32_t>([](U a, U b, int32_t c) { return FindNth(a, b, c); }),
                      in);
}

bool DecodeBrev(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if ((type != ptx::Type::kB32 && type != ptx::Type::kB64) ||
      !Operands(decoder, op, type, 1, &in)) {
    return false;
  }
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [](auto x) {
                                using T = decltype(x);
                                return Map1<T, T>([](T a) { return Reverse(a); });
                              }),
                      in);
}

bool DecodeBfe(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 4 || ptx::SizeBytes(type) < 4 || ptx::IsBits(type) || ptx::IsFloat(type)) {
    return false;
  }
  Instr in;
  in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], 4);
  in.c = decoder.Source(op[3], 4);
  return decoder.Emit(
      ForInteger(type,
                 [](auto x) {
                   using T = decltype(x);
                   return Map3<T, T, U, U>([](T a, U b, U c) { return ExtractField(a, b, c); });
                 }),
      in);
}

bool DecodeBfi(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  if (op.count() != 5 || (type != ptx::Type::kB32 && type != ptx::Type::kB64)) return false;
  Instr in;
  in.d = decoder.Destination(op[0], ptx::SizeBytes(type));
  in.a = decoder.Source(op[1], type);
  in.b = decoder.Source(op[2], type);
  in.c = decoder.Source(op[3], 4);
  in.e = decoder.Source(op[4], 4);
  return decoder.Emit(ForBits(ptx::SizeBytes(type),
                              [](auto x) {
                                using T = decltype(x);
                                return Map4<T, T, T, U, U>(
                                    [](T a, T b, U c, U d) { return InsertField(a, b, c, d); });
                              }),
                      in);
}

bool DecodeBmsk(Decoder& decoder, Op& op) {
  const std::string_view mode = op.mods.TakeOneOf({"clamp", "wrap"});
  Instr in;
  if (mode.empty() || !op.mods.Take("b32") || !Operands(decoder, op, 4, 2, &in)) return false;
  return decoder.Emit(mode == "wrap"
                          ? Map2<U, U, U>([](U a, U b) { return MakeMask(a, b, true); })
                          : Map2<U, U, U>([](U a, U b) { return MakeMask(a, b, false); }),
                      in);
}

bool DecodeSzext(Decoder& decoder, Op& op) {
  const bool wrap = op.mods.Take("wrap");
  if (!wrap && !op.mods.Take("clamp")) return false;
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (!Operands(decoder, op, 4, 2, &in)) return false;
  const auto make = [&](auto x) {
    using T = decltype(x);
    return wrap ? Map2<T, T, U>([](T a, U b) { return Extend(a, b, true); })
                : Map2<T, T, U>([](T a, U b) { return Extend(a, b, false); });
  };
  if (type == ptx::Type::kU32) return decoder.Emit(make(U{}), in);
  if (type == ptx::Type::kS32) return decoder.Emit(make(int32_t{}), in);
  return false;
}

}  // namespace gpuloom::softgpu
