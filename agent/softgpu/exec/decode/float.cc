// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic.
#include <algorithm>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// d = F(a, b, c), rounded to the nearest, with operands and result treated as `extra` requires.
template <class T, uint32_t kSources, class F>
Step ByMode(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = kSources > 1 ? warp.Source<T>(in.b) : a;
  const T* c = kSources > 2 ? warp.Source<T>(in.c) : a;
  // Without .ftz `least` is 0, and nothing is smaller.
  const T least = LeastOf<T>(in.extra);
  const auto result = [=](uint32_t i) {
    return FlushedBelow(static_cast<T>(F{}(FlushedBelow(a[i], least), FlushedBelow(b[i], least),
                                           FlushedBelow(c[i], least))),
                        least);
  };
  if (in.extra & kSaturate) {
    return Apply<T>(warp, in, [=](uint32_t i) { return Out(result(i), kSaturate); });
  }
  return Apply<T>(warp, in, [=](uint32_t i) { return Canonical(result(i)); });
}

template <class T, uint32_t kSources, class F>
Handler Moded(F) {
  return ForVectors<ByMode<T, kSources, F>>();
}

// d = F(a, b, c) under another of the processor's modes: operands are copied out of the registers
// and results back into them, so that nothing but F runs under it.
template <class T, uint32_t kSources, class F>
Step ByRounding(Warp& warp, const Instr& in) {
  struct Values {
    T of[kLanes];
  };
  const Ref refs[] = {in.a, in.b, in.c};
  Values sources[kSources];
  const T least = LeastOf<T>(in.extra);
  for (uint32_t k = 0; k < kSources; ++k) {
    const T* from = warp.Source<T>(refs[k]);
    ForAll([&](uint32_t i) { sources[k].of[i] = FlushedBelow(from[i], least); });
  }
  const Values& a = sources[0];
  const Values& b = sources[kSources > 1 ? 1 : 0];
  const Values& c = sources[kSources > 2 ? 2 : 0];
  Values results;
  {
    const ScopedRound scope(RoundOf(in.extra));
    Pinned(sources);
    ForAll([&](uint32_t i) { results.of[i] = static_cast<T>(F{}(a.of[i], b.of[i], c.of[i])); });
    Pinned(results);
  }
  return Apply<T>(warp, in, [&, mode = in.extra](uint32_t i) { return Out(results.of[i], mode); });
}

template <class T, uint32_t kSources, class F>
Handler Rounded(F) {
  return ForVectors<ByRounding<T, kSources, F>>();
}

// The sign of a not-a-number is not changed.
template <class T>
T Negated(T value) {
  return std::isnan(value) ? Canonical(value) : -value;
}

// div.approx: a divisor above 2^126 gives zero.
float DivideApproximately(float a, float b) {
  const float size = std::fabs(b);
  const float of_large = std::fabs(a) <= std::numeric_limits<float>::max()
                             ? std::copysign(0.0f, a) * std::copysign(1.0f, b)
                             : std::numeric_limits<float>::quiet_NaN();
  const bool large = size > 0x1p126f && size <= std::numeric_limits<float>::max();
  return large ? of_large : a / b;
}

// The plain loop without modifiers; to the nearest with .ftz or .sat; else under the processor's
// mode.
template <class T>
Handler SumOf(uint16_t mode, bool subtract) {
  if (mode == 0) {
    return subtract ? Map2<T, T, T>([](T a, T b) { return Canonical(Made(a - b, a, b)); })
                    : Map2<T, T, T>([](T a, T b) { return Canonical(Made(a + b, a, b)); });
  }
  if (RoundOf(mode) == Round::kNearest) {
    return subtract ? Moded<T, 2>([](T a, T b, T) { return Made(a - b, a, b); })
                    : Moded<T, 2>([](T a, T b, T) { return Made(a + b, a, b); });
  }
  return subtract ? Rounded<T, 2>([](T a, T b, T) { return Made(a - b, a, b); })
                  : Rounded<T, 2>([](T a, T b, T) { return Made(a + b, a, b); });
}

template <class T>
Handler MulOf(uint16_t mode) {
  if (mode == 0) return Map2<T, T, T>([](T a, T b) { return Canonical(Made(a * b, a, b)); });
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 2>([](T a, T b, T) { return Made(a * b, a, b); });
  }
  return Rounded<T, 2>([](T a, T b, T) { return Made(a * b, a, b); });
}

template <class T>
Handler FmaOf(uint16_t mode) {
  if (mode == 0) {
    return Map3<T, T, T, T>(
        [](T a, T b, T c) { return Canonical(Made(std::fma(a, b, c), a, b, c)); });
  }
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 3>([](T a, T b, T c) { return Made(std::fma(a, b, c), a, b, c); });
  }
  return Rounded<T, 3>([](T a, T b, T c) { return Made(std::fma(a, b, c), a, b, c); });
}

template <class T>
Handler DivOf(uint16_t mode) {
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 2>([](T a, T b, T) { return Made(a / b, a, b); });
  }
  return Rounded<T, 2>([](T a, T b, T) { return Made(a / b, a, b); });
}

template <class T>
Handler RcpOf(uint16_t mode) {
  // rcp.approx.ftz.f64, the only reciprocal of double precision with .ftz: half a number, as on
  // hardware.
  if (sizeof(T) == 8 && (mode & kFlush)) {
    return Moded<T, 1>([](T a, T, T) { return UpperHalf(T{1} / a); });
  }
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 1>([](T a, T, T) { return T{1} / a; });
  }
  return Rounded<T, 1>([](T a, T, T) { return T{1} / a; });
}

template <class T>
Handler SqrtOf(uint16_t mode) {
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 1>([](T a, T, T) { return Made(std::sqrt(a), a); });
  }
  return Rounded<T, 1>([](T a, T, T) { return Made(std::sqrt(a), a); });
}

template <class F>
Handler ForFloat(ptx::Type type, F f) {
  if (type == ptx::Type::kF32) return f(float{});
  if (type == ptx::Type::kF64) return f(double{});
  return nullptr;
}

// Double precision has neither.
bool AllowedMode(ptx::Type type, uint16_t mode) {
  return type != ptx::Type::kF64 || (mode & (kFlush | kSaturate)) == 0;
}

// Bits of `extra` for min and max.
enum ExtremeMode : uint16_t { kKeepNan = 0x100, kXorSign = 0x200 };

template <class T, bool kMax>
T Extreme(T a, T b, uint16_t mode) {
  T sign = 1;
  if (mode & kXorSign) {
    sign = std::signbit(a) != std::signbit(b) ? T{-1} : T{1};
    a = std::fabs(a);
    b = std::fabs(b);
  }
  T result;
  if (std::isnan(a) || std::isnan(b)) {
    if ((mode & kKeepNan) || (std::isnan(a) && std::isnan(b))) {
      // Double precision keeps the bits of the not-a-number that a program brought.
      return Canonical(std::isnan(b) ? b : a);
    }
    result = std::isnan(a) ? b : a;
  } else if (a == b) {
    // Of two zeros, the positive one is larger.
    result = std::signbit(a) == kMax ? b : a;
  } else {
    result = (a > b) == kMax ? a : b;
  }
  return std::copysign(result, mode & kXorSign ? sign : result);
}

// Without branches; of not-a-numbers alone the canonical one.
template <class T, bool kMax>
T PlainExtreme(T a, T b) {
  const T of_equals = std::signbit(a) == kMax ? b : a;
  const T of_numbers = a == b ? of_equals : (a > b) == kMax ? a : b;
  const T one = a != a ? b : b != b ? a : of_numbers;
  return Canonical(one);
}

// With .NaN or .xorsign.abs: rare, so it is done lane by lane.
template <class T, bool kMax>
Step ExtremeLanes(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  const uint16_t mode = in.extra;
  return ApplyEach<T>(
      warp, in, [=](uint32_t i) { return Extreme<T, kMax>(In(a[i], mode), In(b[i], mode), mode); });
}

// rcp, sqrt and div of f32 and f64 name a rounding mode or .approx.
bool HasRounding(Op& op, bool approx) {
  return approx || op.mods.Has("rn") || op.mods.Has("rz") || op.mods.Has("rm") || op.mods.Has("rp");
}

}  // namespace

uint16_t TakeFloatMode(Op& op) {
  uint16_t mode = 0;
  const std::string_view round = op.mods.TakeOneOf({"rn", "rz", "rm", "rp"});
  if (round == "rz") mode |= static_cast<uint16_t>(Round::kZero);
  if (round == "rm") mode |= static_cast<uint16_t>(Round::kDown);
  if (round == "rp") mode |= static_cast<uint16_t>(Round::kUp);
  if (op.mods.Take("ftz")) mode |= kFlush;
  if (op.mods.Take("sat")) mode |= kSaturate;
  return mode;
}

bool DecodeFloatSum(Decoder& decoder, Op& op, bool subtract) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, subtract ? HalfOp::kSub : HalfOp::kAdd);
  Instr in;
  in.extra = TakeFloatMode(op);
  const ptx::Type type = op.mods.TakeType();
  if (!AllowedMode(type, in.extra) || !Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(
      ForFloat(type, [&](auto x) { return SumOf<decltype(x)>(in.extra, subtract); }), in);
}

bool DecodeFloatMul(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kMul);
  Instr in;
  in.extra = TakeFloatMode(op);
  const ptx::Type type = op.mods.TakeType();
  if (!AllowedMode(type, in.extra) || !Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForFloat(type, [&](auto x) { return MulOf<decltype(x)>(in.extra); }), in);
}

bool DecodeFma(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kFma);
  Instr in;
  in.extra = TakeFloatMode(op);
  const ptx::Type type = op.mods.TakeType();
  if (!AllowedMode(type, in.extra) || !Operands(decoder, op, type, 3, &in)) return false;
  return decoder.Emit(ForFloat(type, [&](auto x) { return FmaOf<decltype(x)>(in.extra); }), in);
}

bool DecodeFloatDiv(Decoder& decoder, Op& op) {
  const bool coarse = op.mods.Take("approx");
  const bool approx = coarse || op.mods.Take("full");
  const ptx::Type type = TypeOf(op);
  if (!HasRounding(op, approx) || (approx && type != ptx::Type::kF32)) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  op.mods.TakeType();
  if (!AllowedMode(type, in.extra) || !Operands(decoder, op, type, 2, &in)) return false;
  // div.full has no such range: it is a full division here.
  if (coarse) {
    const auto divide = [](float a, float b, float) { return DivideApproximately(a, b); };
    return decoder.Emit(Moded<float, 2>(divide), in);
  }
  return decoder.Emit(ForFloat(type, [&](auto x) { return DivOf<decltype(x)>(in.extra); }), in);
}

namespace {

// rcp and sqrt. `has_coarse`: the function has an approximation in double precision, which is
// .approx.ftz and nothing else.
template <class F>
bool DecodeRoot(Decoder& decoder, Op& op, bool has_coarse, F f) {
  const bool approx = op.mods.Take("approx");
  const ptx::Type type = TypeOf(op);
  if (!HasRounding(op, approx)) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  op.mods.TakeType();
  if ((in.extra & kSaturate) != 0) return false;
  const bool coarse = approx && type == ptx::Type::kF64;
  if (coarse ? !has_coarse || in.extra != kFlush : !AllowedMode(type, in.extra)) return false;
  if (!Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(ForFloat(type, [&](auto x) { return f(x, in.extra); }), in);
}

}  // namespace

bool DecodeRcp(Decoder& decoder, Op& op) {
  return DecodeRoot(decoder, op, /*has_coarse=*/true,
                    [](auto x, uint16_t mode) { return RcpOf<decltype(x)>(mode); });
}

bool DecodeSqrt(Decoder& decoder, Op& op) {
  return DecodeRoot(decoder, op, /*has_coarse=*/false,
                    [](auto x, uint16_t mode) { return SqrtOf<decltype(x)>(mode); });
}

bool DecodeFloatSign(Decoder& decoder, Op& op, bool negate) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, negate ? HalfOp::kNeg : HalfOp::kAbs);
  const bool flush = op.mods.Take("ftz");
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if ((flush && type != ptx::Type::kF32) || !Operands(decoder, op, type, 1, &in)) return false;
  const auto make = [&](auto x) {
    using T = decltype(x);
    if (negate) {
      return flush ? Map1<T, T>([](T a) { return Negated(Flushed(a)); })
                   : Map1<T, T>([](T a) { return Negated(a); });
    }
    return flush ? Map1<T, T>([](T a) { return Canonical(std::fabs(Flushed(a))); })
                 : Map1<T, T>([](T a) { return Canonical(std::fabs(a)); });
  };
  return decoder.Emit(ForFloat(type, make), in);
}

bool DecodeFloatMinMax(Decoder& decoder, Op& op, bool max) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, max ? HalfOp::kMax : HalfOp::kMin);
  Instr in;
  if (op.mods.Take("ftz")) in.extra |= kFlush;
  if (op.mods.Take("NaN")) in.extra |= kKeepNan;
  if (op.mods.Take("xorsign")) {
    if (!op.mods.Take("abs")) return false;
    in.extra |= kXorSign;
  }
  const ptx::Type type = op.mods.TakeType();
  if (type == ptx::Type::kF64 && in.extra != 0) return false;
  if (!Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(
      ForFloat(type,
               [&](auto x) {
                 using T = decltype(x);
                 // Of the modes only .ftz has a fast path.
                 if ((in.extra & ~kFlush) != 0) {
                   return max ? ExtremeLanes<T, true> : ExtremeLanes<T, false>;
                 }
                 return max ? Moded<T, 2>([](T a, T b, T) { return PlainExtreme<T, true>(a, b); })
                            : Moded<T, 2>([](T a, T b, T) { return PlainExtreme<T, false>(a, b); });
               }),
      in);
}

bool DecodeCopysign(Decoder& decoder, Op& op) {
  const ptx::Type type = op.mods.TakeType();
  Instr in;
  if (!Operands(decoder, op, type, 2, &in)) return false;
  return decoder.Emit(ForFloat(type,
                               [](auto x) {
                                 using T = decltype(x);
                                 // PTX: the sign of a, the magnitude of b.
                                 return Map2<T, T, T>([](T a, T b) { return std::copysign(b, a); });
                               }),
                      in);
}

}  // namespace gpuloom::softgpu
