// SPDX-License-Identifier: Apache-2.0
// All formats are encoded by one function from a double, which holds every value of every source
// exactly: so each result is rounded once.
#include "agent/softgpu/exec/machine/half.h"

#include <cmath>

namespace gpuloom::softgpu {
namespace {

// A format with `fraction` stored bits and exponents from `lowest` (of the smallest normal) up to
// `highest`. Returns the bits without the sign.
uint16_t Encode(double magnitude, int fraction, int lowest, int highest, Round round,
                bool negative) {
  const int bias = 1 - lowest;
  const auto infinity = static_cast<uint16_t>((highest + bias + 1) << fraction);
  // Encode() is asked about finite formats, too; there the caller has bounded the magnitude before.
  if (std::isinf(magnitude)) return infinity;
  if (magnitude == 0) return 0;
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  --exponent;  // magnitude = 1.x * 2^exponent
  // Subnormal numbers keep the lowest exponent and lose leading bits instead.
  if (exponent < lowest) exponent = lowest;
  // In units of the last place: exact, because a power of two scales it.
  const double scaled = std::ldexp(magnitude, fraction - exponent);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  bool up = false;
  switch (round) {
    case Round::kNearest:
      up = rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2) != 0);
      break;
    case Round::kNearestAway:
      up = rest >= 0.5;
      break;
    case Round::kZero:
      break;
    case Round::kDown:
      up = negative && rest > 0;
      break;
    case Round::kUp:
      up = !negative && rest > 0;
      break;
  }
  if (up) whole += 1;
  // Carries into the exponent work by themselves, from subnormal to normal too.
  const auto significand = static_cast<int64_t>(whole);
  // The implicit leading bit of a normal number adds 1 to the exponent field, which is why it is
  // subtracted here; a subnormal number has no leading bit and so gets the field 0.
  const int64_t bits = (static_cast<int64_t>(exponent + bias - 1) << fraction) + significand;
  const int64_t largest = infinity - 1;
  // Too large for the format: infinity, or the largest number where the mode rounds toward zero.
  if (bits > largest) {
    const bool to_infinity = round == Round::kNearest || round == Round::kNearestAway ||
                             (round == Round::kUp && !negative) ||
                             (round == Round::kDown && negative);
    return to_infinity ? infinity : static_cast<uint16_t>(largest);
  }
  return static_cast<uint16_t>(bits);
}

uint16_t Sign(bool negative) { return negative ? 0x8000 : 0; }

}  // namespace

// Four bits of exponent with a bias of 7. Only all ones is no number, and there are no infinities.
float ToFloat(E4m3 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x80) << 24;
  const uint32_t exponent = (value.bits >> 3) & 15;
  const uint32_t fraction = value.bits & 7;
  if (exponent == 15 && fraction == 7) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-9f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 120) << 23) | (fraction << 20));
}

E4m3 ToE4m3(double value) {
  if (std::isnan(value)) return {0x7f};
  const bool negative = std::signbit(value);
  // 448 is 0x7e. The format has no infinities, so the exponent that stands for them elsewhere is
  // one more of numbers here.
  const uint16_t bits =
      Encode(std::fmin(std::fabs(value), 448), 3, -6, 8, Round::kNearest, negative);
  return {static_cast<uint8_t>((negative ? 0x80 : 0) | (bits < 0x7e ? bits : 0x7e))};
}

// Five bits of exponent with half precision's bias: 57344 is its largest number.
E5m2 ToE5m2(double value) {
  if (std::isnan(value)) return {0x7f};
  const bool negative = std::signbit(value);
  const uint16_t bits =
      Encode(std::fmin(std::fabs(value), 57344), 2, -14, 15, Round::kNearest, negative);
  return {static_cast<uint8_t>((negative ? 0x80 : 0) | bits)};
}

float ToFloat(Half value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000) << 16;
  const uint32_t exponent = (value.bits >> 10) & 31;
  const uint32_t fraction = value.bits & 0x3ff;
  if (exponent == 31) {
    return std::bit_cast<float>(sign | 0x7f800000u | (fraction << 13));
  }
  // Subnormal: a multiple of the smallest number, which is a normal float.
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (fraction << 13));
}

Half ToHalf(double value, Round round) {
  // Any not-a-number becomes the one that GPUs give, 0x7fff.
  if (std::isnan(value)) return {0x7fff};
  const bool negative = std::signbit(value);
  return {static_cast<uint16_t>(Sign(negative) |
                                Encode(std::fabs(value), 10, -14, 15, round, negative))};
}

Bfloat ToBfloat(double value, Round round) {
  if (std::isnan(value)) return {0x7fff};
  const bool negative = std::signbit(value);
  return {static_cast<uint16_t>(Sign(negative) |
                                Encode(std::fabs(value), 7, -126, 127, round, negative))};
}

}  // namespace gpuloom::softgpu
