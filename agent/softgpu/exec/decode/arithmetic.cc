// SPDX-License-Identifier: Apache-2.0
// The names that integers and floating point share: add, sub, mul, mad, div, abs, neg, min, max.
#include <limits>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/integer.h"
#include "agent/softgpu/exec/machine/lanes.h"

namespace gpuloom::softgpu {
namespace {

template <bool kSubtract>
Handler SumOf(ptx::Type type) {
  return ForInteger(type, [](auto x) {
    using T = decltype(x);
    return Map2<T, T, T>([](T a, T b) { return kSubtract ? SubWrap(a, b) : AddWrap(a, b); });
  });
}

Handler SaturatingSum(bool subtract) {
  if (subtract) {
    return Map2<int32_t, int32_t, int32_t>(
        [](int32_t a, int32_t b) { return Saturate32(int64_t{a} - b); });
  }
  return Map2<int32_t, int32_t, int32_t>(
      [](int32_t a, int32_t b) { return Saturate32(int64_t{a} + b); });
}

// The upper halves are added without the carry of the lower ones.
Handler PairSum() {  // add.u16x2 and add.s16x2
  return Map2<uint32_t, uint32_t, uint32_t>([](uint32_t a, uint32_t b) {
    return ((a & 0xffff0000u) + (b & 0xffff0000u)) | ((a + b) & 0xffffu);
  });
}

bool DecodeSum(Decoder& decoder, Op& op, bool subtract) {
  if (op.mods.Has("cc")) return DecodeCarrySum(decoder, op, subtract);
  if (!subtract && (op.mods.Take("u16x2") || op.mods.Take("s16x2"))) {
    Instr in;
    return Operands(decoder, op, 4, 2, &in) && decoder.Emit(PairSum(), in);
  }
  if (TypeOf(op) == ptx::Type::kNone) return false;
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatSum(decoder, op, subtract);
  const bool saturates = op.mods.Take("sat");
  const ptx::Type type = op.mods.TakeType();
  if (saturates && type != ptx::Type::kS32) return false;
  Instr in;
  if (ptx::IsBits(type) || !Operands(decoder, op, ptx::SizeBytes(type), 2, &in)) return false;
  if (saturates) return decoder.Emit(SaturatingSum(subtract), in);
  return decoder.Emit(subtract ? SumOf<true>(type) : SumOf<false>(type), in);
}

// mul.wide gives the full product; of 64 bits there is none.
template <class T>
Handler MulOf(std::string_view part) {
  if (part == "lo") return Map2<T, T, T>([](T a, T b) { return MulWrap(a, b); });
  if (part == "hi") return Map2<T, T, T>([](T a, T b) { return MulHigh(a, b); });
  if constexpr (sizeof(T) < 8) {
    using W = typename Twice<T>::Type;
    return Map2<W, T, T>([](T a, T b) { return MulWide(a, b); });
  }
  return nullptr;
}

template <class T>
Handler MadOf(std::string_view part) {
  if (part == "lo") {
    return Map3<T, T, T, T>([](T a, T b, T c) { return AddWrap(MulWrap(a, b), c); });
  }
  if (part == "hi") {
    return Map3<T, T, T, T>([](T a, T b, T c) { return AddWrap(MulHigh(a, b), c); });
  }
  if constexpr (sizeof(T) < 8) {
    using W = typename Twice<T>::Type;
    return Map3<W, T, T, W>(
        [](T a, T b, W c) { return AddWrap(static_cast<W>(MulWide(a, b)), c); });
  }
  return nullptr;
}

// mad.hi.sat: the upper half of the product, and the sum limited.
Handler SaturatingMad() {
  return Map3<int32_t, int32_t, int32_t, int32_t>(
      [](int32_t a, int32_t b, int32_t c) { return Saturate32(int64_t{MulHigh(a, b)} + c); });
}

}  // namespace

// Works on a copy, because taking the type is part of decoding it.
ptx::Type TypeOf(const Op& op) {
  Modifiers copy = op.mods;
  return copy.TakeType();
}

bool Operands(Decoder& decoder, Op& op, uint32_t size_bytes, uint32_t sources, Instr* in) {
  if (op.count() != sources + 1) return false;
  in->d = decoder.Destination(op[0], size_bytes);
  Ref* const to[] = {&in->a, &in->b, &in->c, &in->e};
  for (uint32_t i = 0; i < sources; ++i) *to[i] = decoder.Source(op[i + 1], size_bytes);
  return true;
}

bool Operands(Decoder& decoder, Op& op, ptx::Type type, uint32_t sources, Instr* in) {
  if (op.count() != sources + 1) return false;
  in->d = decoder.Destination(op[0], ptx::SizeBytes(type));
  Ref* const to[] = {&in->a, &in->b, &in->c, &in->e};
  for (uint32_t i = 0; i < sources; ++i) *to[i] = decoder.Source(op[i + 1], type);
  return true;
}

bool DecodeAdd(Decoder& decoder, Op& op) { return DecodeSum(decoder, op, false); }
bool DecodeSub(Decoder& decoder, Op& op) { return DecodeSum(decoder, op, true); }

bool DecodeMul(Decoder& decoder, Op& op) {
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatMul(decoder, op);
  const std::string_view part = op.mods.TakeOneOf({"lo", "hi", "wide"});
  const ptx::Type type = op.mods.TakeType();
  if (part.empty() || op.count() != 3 || ptx::IsBits(type)) return false;
  const uint32_t size = ptx::SizeBytes(type);
  Instr in;
  in.d = decoder.Destination(op[0], part == "wide" ? 2 * size : size);
  in.a = decoder.Source(op[1], size);
  in.b = decoder.Source(op[2], size);
  return decoder.Emit(ForInteger(type, [&](auto x) { return MulOf<decltype(x)>(part); }), in);
}

bool DecodeMad(Decoder& decoder, Op& op) {
  if (op.mods.Has("cc")) return DecodeCarryMad(decoder, op, false);
  if (ptx::IsFloat(TypeOf(op))) return DecodeFma(decoder, op);
  const std::string_view part = op.mods.TakeOneOf({"lo", "hi", "wide"});
  const bool saturates = op.mods.Take("sat");
  const ptx::Type type = op.mods.TakeType();
  if (part.empty() || op.count() != 4 || ptx::IsBits(type)) return false;
  const uint32_t size = ptx::SizeBytes(type);
  const uint32_t result = part == "wide" ? 2 * size : size;
  Instr in;
  in.d = decoder.Destination(op[0], result);
  in.a = decoder.Source(op[1], size);
  in.b = decoder.Source(op[2], size);
  in.c = decoder.Source(op[3], result);
  if (saturates) {
    return type == ptx::Type::kS32 && part == "hi" && decoder.Emit(SaturatingMad(), in);
  }
  return decoder.Emit(ForInteger(type, [&](auto x) { return MadOf<decltype(x)>(part); }), in);
}

namespace {

// For 32 bits and less, by division in double precision, which processors do for several values at
// a time: the quotient's whole part is exact, because the next whole number is further away than
// 2^-32 of it.
template <class T>
T Divide(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    return DivideOrAllOnes(a, b);
  } else {
    // Lanes that divide by zero, or are off, divide too: their result is replaced.
    const T safe = b == 0 ? T{1} : b;
    const double quotient = static_cast<double>(a) / static_cast<double>(safe);
    // The lowest number divided by -1 does not fit.
    const bool overflows = std::is_signed_v<T> && quotient > std::numeric_limits<T>::max();
    const T whole = static_cast<T>(overflows ? 0.0 : quotient);
    return b == 0 ? static_cast<T>(~T{0}) : overflows ? a : whole;
  }
}

template <class T>
T Remainder(T a, T b) {
  if constexpr (sizeof(T) == 8) {
    return RemainderOrAllOnes(a, b);
  } else {
    // Because the products wrap around, this is right even where the quotient does not fit.
    return b == 0 ? static_cast<T>(~T{0}) : SubWrap(a, MulWrap(Divide(a, b), b));
  }
}

}  // namespace

bool DecodeDiv(Decoder& decoder, Op& op) {
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatDiv(decoder, op);
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (ptx::IsBits(type) || !Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForInteger(type,
                                 [](auto x) {
                                   using T = decltype(x);
                                   return Map2<T, T, T>([](T a, T b) { return Divide(a, b); });
                                 }),
                      in);
}

bool DecodeRem(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (ptx::IsBits(type) || !Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForInteger(type,
                                 [](auto x) {
                                   using T = decltype(x);
                                   return Map2<T, T, T>([](T a, T b) { return Remainder(a, b); });
                                 }),
                      in);
}

bool DecodeAbs(Decoder& decoder, Op& op) {
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatSign(decoder, op, /*negate=*/false);
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (!ptx::IsSigned(type) || !Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(
      ForInteger(type,
                 // The lowest number stays what it is: its opposite does not fit.
                 [](auto x) {
                   using T = decltype(x);
                   return Map1<T, T>([](T a) { return a < 0 ? SubWrap(T{0}, a) : a; });
                 }),
      in);
}

bool DecodeNeg(Decoder& decoder, Op& op) {
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatSign(decoder, op, /*negate=*/true);
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (!ptx::IsSigned(type) || !Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(ForInteger(type,
                                 [](auto x) {
                                   using T = decltype(x);
                                   return Map1<T, T>([](T a) { return SubWrap(T{0}, a); });
                                 }),
                      in);
}

namespace {

template <class T>
Handler ExtremeOf(bool max, bool relu) {
  if (max) {
    return relu ? Map2<T, T, T>([](T a, T b) { return std::max(std::max(a, b), T{0}); })
                : Map2<T, T, T>([](T a, T b) { return std::max(a, b); });
  }
  return relu ? Map2<T, T, T>([](T a, T b) { return std::max(std::min(a, b), T{0}); })
              : Map2<T, T, T>([](T a, T b) { return std::min(a, b); });
}

// min and max of two 16-bit numbers in one register.
template <class T>
Handler PairExtremeOf(bool max, bool relu) {
  const auto both = [](uint32_t a, uint32_t b, auto f) {
    const auto low = static_cast<uint16_t>(f(static_cast<T>(a), static_cast<T>(b)));
    const auto high = static_cast<uint16_t>(f(static_cast<T>(a >> 16), static_cast<T>(b >> 16)));
    return (static_cast<uint32_t>(high) << 16) | low;
  };
  // Map2 keeps nothing but the type of its function, so what that calls must be a type as well.
  using Both = std::remove_const_t<decltype(both)>;
  using U = uint32_t;
  const auto pick_max = [](T a, T b) { return std::max(a, b); };
  const auto pick_min = [](T a, T b) { return std::min(a, b); };
  const auto relu_max = [](T a, T b) { return std::max(std::max(a, b), T{0}); };
  const auto relu_min = [](T a, T b) { return std::max(std::min(a, b), T{0}); };
  using Max = std::remove_const_t<decltype(pick_max)>;
  using Min = std::remove_const_t<decltype(pick_min)>;
  using ReluMax = std::remove_const_t<decltype(relu_max)>;
  using ReluMin = std::remove_const_t<decltype(relu_min)>;
  if (max && relu) return Map2<U, U, U>([](U a, U b) { return Both{}(a, b, ReluMax{}); });
  if (max) return Map2<U, U, U>([](U a, U b) { return Both{}(a, b, Max{}); });
  if (relu) return Map2<U, U, U>([](U a, U b) { return Both{}(a, b, ReluMin{}); });
  return Map2<U, U, U>([](U a, U b) { return Both{}(a, b, Min{}); });
}

}  // namespace

bool DecodeMinMax(Decoder& decoder, Op& op) {
  const bool max = op.mods.name() == "max";
  if (ptx::IsFloat(TypeOf(op))) return DecodeFloatMinMax(decoder, op, max);
  const bool relu = op.mods.Take("relu");
  Instr in;
  const bool signed_pair = op.mods.Take("s16x2");
  if (signed_pair || op.mods.Take("u16x2")) {
    if ((relu && !signed_pair) || !Operands(decoder, op, 4, 2, &in)) return false;
    return decoder.Emit(
        signed_pair ? PairExtremeOf<int16_t>(max, relu) : PairExtremeOf<uint16_t>(max, relu), in);
  }
  const ptx::Type type = op.mods.TakeType();
  if (ptx::IsBits(type) || (relu && type != ptx::Type::kS32)) return false;
  if (!Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForInteger(type, [&](auto x) { return ExtremeOf<decltype(x)>(max, relu); }),
                      in);
}

}  // namespace gpuloom::softgpu
