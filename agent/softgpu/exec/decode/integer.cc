// SPDX-License-Identifier: Apache-2.0
// Integer arithmetic beyond what arithmetic.cc has: 24-bit products, carries, dot products.
#include "agent/softgpu/exec/machine/integer.h"

#include <cstdlib>

#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

using U = uint32_t;
using S = int32_t;

// The low 24 bits, as a number with or without sign.
int64_t Low24(S a) { return static_cast<S>(static_cast<U>(a) << 8) >> 8; }
uint64_t Low24(U a) { return a & 0xffffffu; }

// 48 bits, of which hi gives the upper 32 and lo the lower.
template <class T>
T Product24(T a, T b, bool high) {
  const auto product = Low24(a) * Low24(b);
  return static_cast<T>(high ? product >> 16 : product);
}

template <class T>
Handler Mul24Of(bool high) {
  return high ? Map2<T, T, T>([](T a, T b) { return Product24(a, b, true); })
              : Map2<T, T, T>([](T a, T b) { return Product24(a, b, false); });
}

template <class T>
Handler Mad24Of(bool high) {
  return high ? Map3<T, T, T, T>([](T a, T b, T c) { return AddWrap(Product24(a, b, true), c); })
              : Map3<T, T, T, T>([](T a, T b, T c) { return AddWrap(Product24(a, b, false), c); });
}

// Whether it is add.cc, addc or addc.cc.
enum CarryMode : uint16_t { kWritesCarry = 1, kReadsCarry = 2 };

// e: the predicate that holds the carry, one bit per lane. Of differences it is the borrow, as 1.
template <class T, bool kSubtract>
Step CarrySum(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  T* d = warp.Destination<T>(in.d);
  const U before = in.extra & kReadsCarry ? warp.Predicate(in.e) : 0;
  U after = 0;
  ForEach(warp.exec, [&](uint32_t i) {
    const T carry = (before >> i) & 1;
    if constexpr (kSubtract) {
      const T first = a[i] - b[i];
      after |= (a[i] < b[i] || first < carry ? 1u : 0u) << i;
      d[i] = first - carry;
    } else {
      const T first = a[i] + b[i];
      const T sum = first + carry;
      after |= (first < a[i] || sum < first ? 1u : 0u) << i;
      d[i] = sum;
    }
  });
  if (in.extra & kWritesCarry) warp.SetPredicate(in.e, after);
  return Step::kNext;
}

// The carry of the sum of one half of the product and c; `.hi` and `.lo` are separate instructions
// of a long multiplication.
template <class T, bool kHigh>
Step CarryMad(Warp& warp, const Instr& in) {
  using N = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  const N* c = warp.Source<N>(in.c);
  N* d = warp.Destination<N>(in.d);
  const U before = in.extra & kReadsCarry ? warp.Predicate(in.e) : 0;
  U after = 0;
  ForEach(warp.exec, [&](uint32_t i) {
    const N product = static_cast<N>(kHigh ? MulHigh(a[i], b[i]) : MulWrap(a[i], b[i]));
    const N first = product + c[i];
    const N sum = first + ((before >> i) & 1);
    after |= (first < product || sum < first ? 1u : 0u) << i;
    d[i] = sum;
  });
  if (in.extra & kWritesCarry) warp.SetPredicate(in.e, after);
  return Step::kNext;
}

// add, addc, sub and subc, with and without .cc.
bool DecodeCarry(Decoder& decoder, Op& op, bool subtract, bool with_carry) {
  Instr in;
  if (op.mods.Take("cc")) in.extra |= kWritesCarry;
  if (with_carry) in.extra |= kReadsCarry;
  const ptx::Type type = op.mods.TakeType();
  const uint32_t size = ptx::SizeBytes(type);
  if (ptx::IsFloat(type) || !Operands(decoder, op, size, 2, &in)) return false;
  in.e = decoder.CarryPredicate();
  if (size == 4)
    return decoder.Emit(subtract ? CarrySum<uint32_t, true> : CarrySum<uint32_t, false>, in);
  if (size == 8)
    return decoder.Emit(subtract ? CarrySum<uint64_t, true> : CarrySum<uint64_t, false>, in);
  return false;
}

// Dot products of bytes: dp4a, or of two 16-bit numbers with two of four bytes: dp2a.
template <class A, class B>
U Dot4(U a, U b, U c) {
  for (int i = 0; i < 4; ++i) {
    c += static_cast<U>(static_cast<S>(static_cast<A>(a >> (8 * i))) *
                        static_cast<S>(static_cast<B>(b >> (8 * i))));
  }
  return c;
}

template <class A, class B>
U Dot2(U a, U b, U c, bool high) {
  if (high) b >>= 16;
  for (int i = 0; i < 2; ++i) {
    c += static_cast<U>(static_cast<S>(static_cast<A>(a >> (16 * i))) *
                        static_cast<S>(static_cast<B>(b >> (8 * i))));
  }
  return c;
}

// A4 and A2: the parts of a in dp4a and dp2a; B: those of b.
template <class A4, class A2, class B>
Handler DotOf(std::string_view which) {
  if (which == "4") return Map3<U, U, U, U>([](U a, U b, U c) { return Dot4<A4, B>(a, b, c); });
  if (which == "lo")
    return Map3<U, U, U, U>([](U a, U b, U c) { return Dot2<A2, B>(a, b, c, false); });
  return Map3<U, U, U, U>([](U a, U b, U c) { return Dot2<A2, B>(a, b, c, true); });
}

}  // namespace

bool DecodeCarrySum(Decoder& decoder, Op& op, bool subtract) {
  return DecodeCarry(decoder, op, subtract, false);
}
bool DecodeAddc(Decoder& decoder, Op& op) { return DecodeCarry(decoder, op, false, true); }
bool DecodeSubc(Decoder& decoder, Op& op) { return DecodeCarry(decoder, op, true, true); }

bool DecodeCarryMad(Decoder& decoder, Op& op, bool with_carry) {
  Instr in;
  if (op.mods.Take("cc")) in.extra |= kWritesCarry;
  if (with_carry) in.extra |= kReadsCarry;
  const std::string_view part = op.mods.TakeOneOf({"lo", "hi"});
  const ptx::Type type = op.mods.TakeType();
  if (part.empty() || !Operands(decoder, op, ptx::SizeBytes(type), 3, &in)) return false;
  in.e = decoder.CarryPredicate();
  const bool high = part == "hi";
  switch (type) {
    case ptx::Type::kU32:
      return decoder.Emit(high ? CarryMad<uint32_t, true> : CarryMad<uint32_t, false>, in);
    case ptx::Type::kS32:
      return decoder.Emit(high ? CarryMad<int32_t, true> : CarryMad<int32_t, false>, in);
    case ptx::Type::kU64:
      return decoder.Emit(high ? CarryMad<uint64_t, true> : CarryMad<uint64_t, false>, in);
    case ptx::Type::kS64:
      return decoder.Emit(high ? CarryMad<int64_t, true> : CarryMad<int64_t, false>, in);
    default:
      return false;
  }
}
bool DecodeMadc(Decoder& decoder, Op& op) { return DecodeCarryMad(decoder, op, true); }

bool DecodeMul24(Decoder& decoder, Op& op) {
  const std::string_view part = op.mods.TakeOneOf({"lo", "hi"});
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (part.empty() || !Operands(decoder, op, 4, 2, &in)) return false;
  if (type == ptx::Type::kU32) return decoder.Emit(Mul24Of<U>(part == "hi"), in);
  if (type == ptx::Type::kS32) return decoder.Emit(Mul24Of<S>(part == "hi"), in);
  return false;
}

bool DecodeMad24(Decoder& decoder, Op& op) {
  const std::string_view part = op.mods.TakeOneOf({"lo", "hi"});
  const bool saturates = op.mods.Take("sat");
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (part.empty() || !Operands(decoder, op, 4, 3, &in)) return false;
  if (saturates) {
    if (type != ptx::Type::kS32 || part != "hi") return false;
    return decoder.Emit(Map3<S, S, S, S>([](S a, S b, S c) {
                          return Saturate32(int64_t{Product24(a, b, true)} + c);
                        }),
                        in);
  }
  if (type == ptx::Type::kU32) return decoder.Emit(Mad24Of<U>(part == "hi"), in);
  if (type == ptx::Type::kS32) return decoder.Emit(Mad24Of<S>(part == "hi"), in);
  return false;
}

bool DecodeSad(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (ptx::IsBits(type) || ptx::IsFloat(type) || !Operands(decoder, op, type, 3, &in)) return false;
  return decoder.Emit(ForInteger(type,
                                 [](auto x) {
                                   using T = decltype(x);
                                   return Map3<T, T, T, T>([](T a, T b, T c) {
                                     return AddWrap(c, a < b ? SubWrap(b, a) : SubWrap(a, b));
                                   });
                                 }),
                      in);
}

bool DecodeDp(Decoder& decoder, Op& op) {
  std::string_view which = "4";
  if (op.mods.name() == "dp2a") {
    which = op.mods.TakeOneOf({"lo", "hi"});
    if (which.empty()) return false;
  }
  const ptx::Type a = op.mods.TakeType();
  const ptx::Type b = op.mods.TakeType();
  Instr in;
  if (!Operands(decoder, op, 4, 3, &in)) return false;
  const bool valid = (a == ptx::Type::kU32 || a == ptx::Type::kS32) &&
                     (b == ptx::Type::kU32 || b == ptx::Type::kS32);
  if (!valid) return false;
  if (a == ptx::Type::kU32) {
    return decoder.Emit(b == ptx::Type::kU32 ? DotOf<uint8_t, uint16_t, uint8_t>(which)
                                             : DotOf<uint8_t, uint16_t, int8_t>(which),
                        in);
  }
  return decoder.Emit(b == ptx::Type::kU32 ? DotOf<int8_t, int16_t, uint8_t>(which)
                                           : DotOf<int8_t, int16_t, int8_t>(which),
                      in);
}

}  // namespace gpuloom::softgpu
