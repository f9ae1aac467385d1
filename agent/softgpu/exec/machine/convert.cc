// SPDX-License-Identifier: Apache-2.0
// One conversion at a time, by way of double or of 128-bit integers, both of which hold every value
// of the types that they stand for. Slow and complete; decode/convert.cc has fast ways for what
// programs do often and must give the same.
#include "agent/softgpu/exec/machine/convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "agent/softgpu/exec/machine/integer.h"
#include "agent/softgpu/exec/machine/rounded.h"

namespace gpuloom::softgpu {
namespace {

uint32_t BitsOf(ptx::Type type) { return 8 * ptx::SizeBytes(type); }

// The low bits as a value of `type`, extended to 64 bits with or without its sign.
uint64_t Extend(uint64_t bits, ptx::Type type) {
  const uint32_t shift = 64 - BitsOf(type);
  if (shift == 0) return bits;
  if (ptx::IsSigned(type))
    return static_cast<uint64_t>(static_cast<int64_t>(bits << shift) >> shift);
  return bits << shift >> shift;
}

// In 128 bits, so that the limits of signed and unsigned 64-bit types can be compared.
Wide LowestOf(ptx::Type type) {
  return ptx::IsSigned(type) ? -(Wide{1} << (BitsOf(type) - 1)) : Wide{0};
}
Wide HighestOf(ptx::Type type) {
  return (Wide{1} << (ptx::IsSigned(type) ? BitsOf(type) - 1 : BitsOf(type))) - 1;
}

Wide IntegerOf(uint64_t bits, ptx::Type type) {
  const uint64_t extended = Extend(bits, type);
  return ptx::IsSigned(type) ? Wide{static_cast<int64_t>(extended)} : Wide{extended};
}

// The source as a double, exactly. Subnormal floats are flushed here, before anything is rounded.
double DoubleOf(uint64_t bits, const Conversion& how) {
  switch (how.from) {
    case ptx::Type::kF16:
      return ToFloat(Half{static_cast<uint16_t>(bits)});
    case ptx::Type::kBf16:
      return ToFloat(Bfloat{static_cast<uint16_t>(bits)});
    case ptx::Type::kF32: {
      const float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
      return how.flush ? Flushed(value) : value;
    }
    default:
      return std::bit_cast<double>(bits);
  }
}

// The nearest value of F, then one step to the side that the mode asks for.
// The C++ conversion rounds to the nearest; the value that it gives is converted back to see on
// which side of the exact one it lies.
template <class F>
F FromInteger(Wide value, Round round) {
  F result = static_cast<F>(value);
  if (round == Round::kNearest || std::isinf(result)) return result;
  const Wide back = static_cast<Wide>(result);
  const bool toward_zero = round == Round::kZero;
  if (back > value && (round == Round::kDown || (toward_zero && value > 0))) {
    result = std::nextafter(result, -std::numeric_limits<F>::infinity());
  } else if (back < value && (round == Round::kUp || (toward_zero && value < 0))) {
    result = std::nextafter(result, std::numeric_limits<F>::infinity());
  }
  return result;
}

// Rounds first, then limits the range: 255.4 becomes 255 in 8 bits, not an overflow.
uint64_t ToInteger(double value, const Conversion& how) {
  if (std::isnan(value)) {
    // A GPU gives 0 for what it converts in 32 bits, and the lowest number elsewhere.
    const uint32_t bits = BitsOf(how.to);
    const bool wide = bits == 64 || (bits == 32 && how.from == ptx::Type::kF64);
    return wide ? uint64_t{1} << (bits - 1) : 0;
  }
  const double whole = RoundToIntegral(value, how.round);
  // Out of range, a conversion gives the nearest integer that there is.
  const Wide lowest = LowestOf(how.to);
  // The highest 64-bit numbers are not doubles: as doubles they are one more, so `>=` takes what
  // rounds up to there as well.
  const Wide highest = HighestOf(how.to);
  if (whole <= static_cast<double>(lowest)) return static_cast<uint64_t>(lowest);
  if (whole >= static_cast<double>(highest)) return static_cast<uint64_t>(highest);
  return static_cast<uint64_t>(static_cast<Wide>(whole));
}

// Not-a-number becomes 0, as all comparisons with it fail.
double Saturated(double value) { return value > 0 ? std::min(value, 1.0) : 0.0; }

// Ten bits of fraction in the place of 23.
uint32_t ToTf32(float value, const Conversion& how) {
  // relu gives 0 for what is not above 0, but keeps a not-a-number.
  if (how.relu && !std::isnan(value) && !(value > 0)) return 0;
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  // Only .rna lets the upper bits of a not-a-number through.
  if (std::isnan(value) && how.round != Round::kNearestAway) return 0x7fffffff;
  uint32_t rounded = bits;
  // To the nearest by adding half of what is cut off; to the even one by adding one less where the
  // last bit is 0.
  if (std::isfinite(value)) {
    if (how.round == Round::kNearestAway) rounded += 0x1000;
    if (how.round == Round::kNearest) rounded += 0xfff + ((bits >> 13) & 1);
  }
  rounded &= ~0x1fffu;
  constexpr uint32_t kInfinity = 0x7f800000;
  const bool is_infinite = (rounded & 0x7fffffff) == kInfinity;
  // The largest finite number has the bits before those of infinity.
  return how.finite && is_infinite ? rounded - 0x2000 : rounded;
}

// The largest number of a type of 16 bits.
double Finite(double value, ptx::Type type) {
  const double largest = type == ptx::Type::kF16 ? 65504 : 0x1.FEp127;
  return std::isnan(value) ? value : std::clamp(value, -largest, largest);
}

// From double and bfloat16 the upper bits of a not-a-number stay; from others the canonical one
// comes.
uint32_t NanToSingle(double value, ptx::Type from) {
  if (from != ptx::Type::kF64 && from != ptx::Type::kBf16) return 0x7fffffff;
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const auto sign = static_cast<uint32_t>(bits >> 63) << 31;
  return sign | 0x7fc00000u | (static_cast<uint32_t>(bits >> 29) & 0x3fffffu);
}

// Range first, then format: the limits of relu and .satfinite are exact doubles, so that this does
// not round twice.
uint64_t FromDouble(double value, const Conversion& how) {
  if (how.saturate) value = Saturated(value);
  if (how.relu && !std::isnan(value) && !(value > 0)) value = 0;
  if (how.finite) value = Finite(value, how.to);
  switch (how.to) {
    case ptx::Type::kF16:
      return ToHalf(value, how.round).bits;
    case ptx::Type::kBf16:
      return ToBfloat(value, how.round).bits;
    case ptx::Type::kF32: {
      if (std::isnan(value)) return NanToSingle(value, how.from);
      float narrow = ToSingle(value, how.round);
      if (how.flush) narrow = Flushed(narrow);
      return std::bit_cast<uint32_t>(narrow);
    }
    default:
      return std::bit_cast<uint64_t>(value);
  }
}

uint64_t IntegerToFloat(Wide value, const Conversion& how) {
  if (how.to == ptx::Type::kF32) {
    float result = FromInteger<float>(value, how.round);
    if (how.saturate) result = static_cast<float>(Saturated(result));
    return std::bit_cast<uint32_t>(result);
  }
  if (how.to == ptx::Type::kF64) {
    double result = FromInteger<double>(value, how.round);
    if (how.saturate) result = Saturated(result);
    return std::bit_cast<uint64_t>(result);
  }
  // To 16 bits: two exact doubles, added so that the sum can be rounded once more.
  const auto high = static_cast<double>(static_cast<int64_t>(value >> 32)) * 0x1p32;
  const auto low = static_cast<double>(static_cast<uint32_t>(value));
  return FromDouble(AddRoundToOdd(high, low), how);
}

}  // namespace

float ToSingle(double value, Round round) {
  float nearest = static_cast<float>(value);
  if (round == Round::kNearest || std::isnan(value) || static_cast<double>(nearest) == value) {
    return nearest;
  }
  // One step from the nearest number to the side that the mode asks for. An infinity that it does
  // not want becomes the largest number that way.
  const bool above = static_cast<double>(nearest) > value;
  const bool down = round == Round::kDown || (round == Round::kZero && value > 0);
  if (above && down) return std::nextafter(nearest, -std::numeric_limits<float>::infinity());
  if (!above && !down) return std::nextafter(nearest, std::numeric_limits<float>::infinity());
  return nearest;
}

double RoundToIntegral(double value, Round round) {
  switch (round) {
    case Round::kZero:
      return std::trunc(value);
    case Round::kDown:
      return std::floor(value);
    case Round::kUp:
      return std::ceil(value);
    case Round::kNearestAway:
      return std::round(value);
    case Round::kNearest:
      break;
  }
  // Done by hand: nearbyint() would follow the processor's mode.
  const double below = std::floor(value);
  const double rest = value - below;
  const bool up = rest > 0.5 || (rest == 0.5 && std::fmod(below, 2) != 0);
  // A negative number that rounds to zero gives negative zero.
  return std::copysign(up ? below + 1 : below, value);
}

uint64_t Convert(const Conversion& how, uint64_t bits) {
  if (how.tf32) return ToTf32(std::bit_cast<float>(static_cast<uint32_t>(bits)), how);
  const bool from_float = ptx::IsFloat(how.from);
  const bool to_float = ptx::IsFloat(how.to);
  if (from_float) {
    double value = DoubleOf(bits, how);
    if (!to_float) return Extend(ToInteger(value, how), how.to);
    // Rounded to a whole number here; if the format is narrower, it takes the nearest to that.
    // Infinities and not-a-numbers take the usual path.
    if (how.to_integral && std::isfinite(value)) {
      Conversion rest = how;
      rest.round = Round::kNearest;
      return FromDouble(RoundToIntegral(value, how.round), rest);
    }
    // The bits of a double's not-a-number survive a conversion to its own type.
    if (how.to == ptx::Type::kF64 && how.from == ptx::Type::kF64 && !how.saturate) return bits;
    return FromDouble(value, how);
  }
  const Wide value = IntegerOf(bits, how.from);
  if (to_float) return IntegerToFloat(value, how);
  const Wide kept = how.saturate ? std::clamp(value, LowestOf(how.to), HighestOf(how.to)) : value;
  return Extend(static_cast<uint64_t>(kept), how.to);
}

}  // namespace gpuloom::softgpu
