// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic.
#include <algorithm>

#include "agent/softgpu/exec/decode/decoder.h"
#include "agent/softgpu/exec/decode/instruction_table.h"
#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/fma.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// d = F(a, b, c, rounding) with operands and result treated as `extra` says.
template <class T, uint32_t kSources, class F>
Step ByMode(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = kSources > 1 ? warp.Source<T>(in.b) : a;
  const T* c = kSources > 2 ? warp.Source<T>(in.c) : a;
  const uint16_t mode = in.extra;
  const Round round = RoundOf(mode);
  return Apply<T>(warp, in, [=](uint32_t i) {
    return Out(static_cast<T>(F{}(In(a[i], mode), In(b[i], mode), In(c[i], mode), round)), mode);
  });
}

template <class T, uint32_t kSources, class F>
Handler Moded(F) {
  return ByMode<T, kSources, F>;
}

// The sign of a not-a-number is not changed.
template <class T>
T Negated(T value) {
  return std::isnan(value) ? Canonical(value) : -value;
}

// rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 give the upper half of a double.
template <class T>
T UpperHalf(T value) {
  if constexpr (sizeof(T) == 8) {
    return std::bit_cast<T>(std::bit_cast<uint64_t>(value) & 0xffffffff00000000u);
  }
  return value;
}

// div.approx: a divisor above 2^126 gives zero.
float DivideApproximately(float a, float b) {
  if (std::fabs(b) <= 0x1p126f || !std::isfinite(b) || std::isnan(a)) return a / b;
  if (std::isinf(a)) return a - a;
  return std::copysign(0.0f, a) * std::copysign(1.0f, b);
}

template <class T>
Handler SumOf(uint16_t mode, bool subtract) {
  if (mode == 0) {
    return subtract ? Map2<T, T, T>([](T a, T b) { return Canonical(a - b); })
                    : Map2<T, T, T>([](T a, T b) { return Canonical(a + b); });
  }
  if (RoundOf(mode) == Round::kNearest) {
    return subtract ? Moded<T, 2>([](T a, T b, T, Round) { return a - b; })
                    : Moded<T, 2>([](T a, T b, T, Round) { return a + b; });
  }
  return subtract ? Moded<T, 2>([](T a, T b, T, Round r) { return AddRounded(a, -b, r); })
                  : Moded<T, 2>([](T a, T b, T, Round r) { return AddRounded(a, b, r); });
}

template <class T>
Handler MulOf(uint16_t mode) {
  if (mode == 0) return Map2<T, T, T>([](T a, T b) { return Canonical(a * b); });
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 2>([](T a, T b, T, Round) { return a * b; });
  }
  return Moded<T, 2>([](T a, T b, T, Round r) { return MulRounded(a, b, r); });
}

template <class T>
Handler FmaOf(uint16_t mode) {
  if (mode == 0) return FmaHandler(sizeof(T));
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 3>([](T a, T b, T c, Round) { return std::fma(a, b, c); });
  }
  return Moded<T, 3>([](T a, T b, T c, Round r) { return FmaRounded(a, b, c, r); });
}

template <class T>
Handler DivOf(uint16_t mode) {
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 2>([](T a, T b, T, Round) { return a / b; });
  }
  return Moded<T, 2>([](T a, T b, T, Round r) { return DivRounded(a, b, r); });
}

template <class T>
Handler RcpOf(uint16_t mode) {
  if (sizeof(T) == 8 && (mode & kFlush)) {
    return Moded<T, 1>([](T a, T, T, Round) { return UpperHalf(T{1} / a); });
  }
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 1>([](T a, T, T, Round) { return T{1} / a; });
  }
  return Moded<T, 1>([](T a, T, T, Round r) { return DivRounded(T{1}, a, r); });
}

template <class T>
Handler SqrtOf(uint16_t mode) {
  if (RoundOf(mode) == Round::kNearest) {
    return Moded<T, 1>([](T a, T, T, Round) { return std::sqrt(a); });
  }
  return Moded<T, 1>([](T a, T, T, Round r) { return SqrtRounded(a, r); });
}

template <class F>
Handler ForFloat(ptx::Type type, F f) {
  if (type == ptx::Type::kF32) return f(float{});
  if (type == ptx::Type::kF64) return f(double{});
  return nullptr;
}

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
      return Canonical(std::isnan(b) ? b : a);
    }
    result = std::isnan(a) ? b : a;
  } else if (a == b) {
    // Of two zeros the positive one is larger.
    result = std::signbit(a) == kMax ? b : a;
  } else {
    result = (a > b) == kMax ? a : b;
  }
  return std::copysign(result, mode & kXorSign ? sign : result);
}

template <class T, bool kMax>
Step ExtremeLanes(Warp& warp, const Instr& in) {
  const T* a = warp.Source<T>(in.a);
  const T* b = warp.Source<T>(in.b);
  const uint16_t mode = in.extra;
  return Apply<T>(
      warp, in, [=](uint32_t i) { return Extreme<T, kMax>(In(a[i], mode), In(b[i], mode), mode); });
}

bool NeedsMode(Op& op, ptx::Type type, bool approx) {
  // rcp, sqrt and div of f32 and f64 name a rounding mode or .approx.
  (void)type;
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
  if (!NeedsMode(op, type, approx) || (approx && type != ptx::Type::kF32)) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  op.mods.TakeType();
  if (!AllowedMode(type, in.extra) || !Operands(decoder, op, type, 2, &in)) return false;
  if (coarse) {
    const auto divide = [](float a, float b, float, Round) { return DivideApproximately(a, b); };
    return decoder.Emit(Moded<float, 2>(divide), in);
  }
  return decoder.Emit(ForFloat(type, [&](auto x) { return DivOf<decltype(x)>(in.extra); }), in);
}

namespace {

template <class F>
bool DecodeRoot(Decoder& decoder, Op& op, F f) {
  const bool approx = op.mods.Take("approx");
  const ptx::Type type = TypeOf(op);
  if (!NeedsMode(op, type, approx)) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  op.mods.TakeType();
  if (!Operands(decoder, op, type, 1, &in)) return false;
  return decoder.Emit(ForFloat(type, [&](auto x) { return f(x, in.extra); }), in);
}

}  // namespace

bool DecodeRcp(Decoder& decoder, Op& op) {
  return DecodeRoot(decoder, op, [](auto x, uint16_t mode) { return RcpOf<decltype(x)>(mode); });
}

bool DecodeSqrt(Decoder& decoder, Op& op) {
  return DecodeRoot(decoder, op, [](auto x, uint16_t mode) { return SqrtOf<decltype(x)>(mode); });
}

bool DecodeRsqrt(Decoder& decoder, Op& op) {
  if (!op.mods.Has("approx")) return false;
  return DecodeRoot(decoder, op, [](auto x, uint16_t mode) {
    using T = decltype(x);
    if (sizeof(T) == 4 || !(mode & kFlush)) {
      return Moded<T, 1>(
          [](T a, T, T, Round) { return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))); });
    }
    return Moded<T, 1>([](T a, T, T, Round) {
      return UpperHalf(static_cast<T>(1.0 / std::sqrt(static_cast<double>(a))));
    });
  });
}

namespace {

// The approximations of f32: computed in double precision, which is nearer than the hardware's.
template <class F>
bool DecodeApprox(Decoder& decoder, Op& op, F) {
  if (!op.mods.Take("approx")) return false;
  Instr in;
  in.extra = TakeFloatMode(op);
  if (op.mods.TakeType() != ptx::Type::kF32 || !Operands(decoder, op, ptx::Type::kF32, 1, &in)) {
    return false;
  }
  return decoder.Emit(Moded<float, 1>([](float a, float, float, Round) {
                        return static_cast<float>(F{}(static_cast<double>(a)));
                      }),
                      in);
}

}  // namespace

bool DecodeSinCos(Decoder& decoder, Op& op) {
  if (op.mods.name() == "sin") {
    return DecodeApprox(decoder, op, [](double a) { return std::sin(a); });
  }
  return DecodeApprox(decoder, op, [](double a) { return std::cos(a); });
}

bool DecodeLg2(Decoder& decoder, Op& op) {
  return DecodeApprox(decoder, op, [](double a) { return std::log2(a); });
}

bool DecodeEx2(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kEx2);
  return DecodeApprox(decoder, op, [](double a) { return std::exp2(a); });
}

bool DecodeTanh(Decoder& decoder, Op& op) {
  if (IsHalf(TypeOf(op))) return DecodeHalf(decoder, op, HalfOp::kTanh);
  return DecodeApprox(decoder, op, [](double a) { return std::tanh(a); });
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
  return decoder.Emit(ForFloat(type,
                               [&](auto x) {
                                 using T = decltype(x);
                                 return max ? ExtremeLanes<T, true> : ExtremeLanes<T, false>;
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
