// SPDX-License-Identifier: Apache-2.0
// Half precision and bfloat16: computed in double precision, so that the result is rounded once. In
// software, lane by lane.
#include <cmath>
#include <limits>

#include "agent/softgpu/exec/decode/types.h"
#include "agent/softgpu/exec/machine/lanes.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

// Beside the bits of FloatMode.
enum HalfMode : uint16_t { kHalfKeepNan = 0x100, kHalfXorSign = 0x200 };

// `least`: the smallest normal number of the format.
double FlushHalf(double value, uint16_t mode, double least) {
  return (mode & kFlush) && std::fabs(value) < least ? std::copysign(0.0, value) : value;
}

double ExtremeOf(double a, double b, bool max, uint16_t mode) {
  bool negative = false;
  if (mode & kHalfXorSign) {
    negative = std::signbit(a) != std::signbit(b);
    a = std::fabs(a);
    b = std::fabs(b);
  }
  double result;
  if (std::isnan(a) || std::isnan(b)) {
    if ((mode & kHalfKeepNan) || (std::isnan(a) && std::isnan(b))) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    result = std::isnan(a) ? b : a;
  } else if (a == b) {
    // Of two zeros, the positive one is the larger.
    result = std::signbit(a) == max ? b : a;
  } else {
    result = (a > b) == max ? a : b;
  }
  return negative ? -result : result;
}

// Sums are rounded to odd, so that rounding them again to 16 bits is as good as rounding the exact
// ones; products of two such numbers are exact.
double Compute(HalfOp what, double a, double b, double c, uint16_t mode) {
  switch (what) {
    case HalfOp::kAdd:
      return AddRoundToOdd(a, b);
    case HalfOp::kSub:
      return AddRoundToOdd(a, -b);
    case HalfOp::kMul:
      return a * b;
    case HalfOp::kFma:
      return AddRoundToOdd(a * b, c);
    case HalfOp::kMin:
      return ExtremeOf(a, b, false, mode);
    case HalfOp::kMax:
      return ExtremeOf(a, b, true, mode);
    case HalfOp::kEx2:
      return std::exp2(a);
    case HalfOp::kTanh:
      return std::tanh(a);
    case HalfOp::kAbs:
      return std::fabs(a);
    case HalfOp::kNeg:
      return -a;
  }
  return 0;
}

template <class H>
H Round16(double value);
template <>
Half Round16(double value) {
  return ToHalf(value);
}
template <>
Bfloat Round16(double value) {
  return ToBfloat(value);
}

template <class H>
uint16_t One(HalfOp what, uint16_t a, uint16_t b, uint16_t c, uint16_t mode) {
  const double least = std::is_same_v<H, Half> ? 0x1p-14 : 0x1p-126;
  const auto in = [&](uint16_t bits) {
    return FlushHalf(static_cast<double>(ToFloat(H{bits})), mode, least);
  };
  double result = Compute(what, in(a), in(b), in(c), mode);
  if (mode & kSaturate) result = result > 0 ? std::fmin(result, 1.0) : 0.0;
  // relu keeps a not-a-number, which saturation makes 0.
  if ((mode & kRelu) && !std::isnan(result)) result = result > 0 ? result : 0.0;
  H rounded = Round16<H>(result);
  // A result that rounds to a subnormal number is flushed as well.
  if (FlushHalf(static_cast<double>(ToFloat(rounded)), mode, least) == 0) rounded.bits &= 0x8000;
  return rounded.bits;
}

// imm: the HalfOp.
template <class H>
Step Single(Warp& warp, const Instr& in) {
  const auto* a = warp.Source<uint16_t>(in.a);
  const auto* b = warp.Source<uint16_t>(in.b);
  const auto* c = warp.Source<uint16_t>(in.c);
  const auto what = static_cast<HalfOp>(in.imm);
  return ApplyEach<uint16_t>(warp, in,
                             [=](uint32_t i) { return One<H>(what, a[i], b[i], c[i], in.extra); });
}

template <class H>
Step Pair(Warp& warp, const Instr& in) {
  const auto* a = warp.Source<uint32_t>(in.a);
  const auto* b = warp.Source<uint32_t>(in.b);
  const auto* c = warp.Source<uint32_t>(in.c);
  const auto what = static_cast<HalfOp>(in.imm);
  return ApplyEach<uint32_t>(warp, in, [=](uint32_t i) {
    const auto part = [](uint32_t value, int k) {
      return static_cast<uint16_t>(value >> (16 * k));
    };
    uint32_t result = 0;
    for (int k = 0; k < 2; ++k) {
      const uint16_t half = One<H>(what, part(a[i], k), part(b[i], k), part(c[i], k), in.extra);
      result |= static_cast<uint32_t>(half) << (16 * k);
    }
    return result;
  });
}

// How many operands an operation reads.
uint32_t SourcesOf(HalfOp what) {
  switch (what) {
    case HalfOp::kFma:
      return 3;
    case HalfOp::kAdd:
    case HalfOp::kSub:
    case HalfOp::kMul:
    case HalfOp::kMin:
    case HalfOp::kMax:
      return 2;
    default:
      return 1;
  }
}

}  // namespace

bool IsHalf(ptx::Type type) {
  return type == ptx::Type::kF16 || type == ptx::Type::kF16x2 || type == ptx::Type::kBf16 ||
         type == ptx::Type::kBf16x2;
}

bool DecodeHalf(Decoder& decoder, Op& op, HalfOp what) {
  Instr in;
  // Halves round to the nearest only.
  if (!op.mods.TakeOneOf({"rz", "rm", "rp"}).empty()) return false;
  const bool approximate = what == HalfOp::kEx2 || what == HalfOp::kTanh;
  if (approximate && !op.mods.Take("approx")) return false;
  in.extra = TakeFloatMode(op);
  if (what == HalfOp::kFma && op.mods.Take("relu")) in.extra |= kRelu;
  if (what == HalfOp::kMin || what == HalfOp::kMax) {
    if (op.mods.Take("NaN")) in.extra |= kHalfKeepNan;
    if (op.mods.Take("xorsign")) {
      if (!op.mods.Take("abs")) return false;
      in.extra |= kHalfXorSign;
    }
  }
  const ptx::Type type = op.mods.TakeType();
  const uint32_t sources = SourcesOf(what);
  if (!Operands(decoder, op, type, sources, &in)) return false;
  // The handler reads three operands, so missing ones must refer to something.
  if (sources < 2) in.b = in.a;
  if (sources < 3) in.c = in.a;
  in.imm = static_cast<int64_t>(what);
  switch (type) {
    case ptx::Type::kF16:
      return decoder.Emit(Single<Half>, in);
    case ptx::Type::kBf16:
      return decoder.Emit(Single<Bfloat>, in);
    case ptx::Type::kF16x2:
      return decoder.Emit(Pair<Half>, in);
    case ptx::Type::kBf16x2:
      return decoder.Emit(Pair<Bfloat>, in);
    default:
      return false;
  }
}

}  // namespace gpuloom::softgpu
