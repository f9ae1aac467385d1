// SPDX-License-Identifier: Apache-2.0
// Floating-point arithmetic with the rounding modes, flushing and saturation of PTX.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "agent/softgpu/exec/machine/half.h"

namespace gpuloom::softgpu {

// How a result is made, kept in Instr::extra.
enum FloatMode : uint16_t {
  kRoundMask = 0x07,  // a Round
  kFlush = 0x08,      // .ftz: subnormal operands and results become zeros
  kSaturate = 0x10,   // .sat: into [0, 1], not-a-number to 0
  kRelu = 0x20,       // negative results and not-a-number handling of .relu
};

[[nodiscard]] inline Round RoundOf(uint16_t mode) { return static_cast<Round>(mode & kRoundMask); }

// A GPU's single-precision operations give this not-a-number, whatever their operands held.
inline float Canonical(float value) {
  return value != value ? std::bit_cast<float>(0x7fffffffu) : value;
}
inline double Canonical(double value) { return value; }

inline float Flushed(float value) {
  return std::fabs(value) < std::numeric_limits<float>::min() ? std::copysign(0.0f, value) : value;
}
inline double Flushed(double value) { return value; }

template <class T>
T In(T value, uint16_t mode) {
  return mode & kFlush ? Flushed(value) : value;
}

template <class T>
T Out(T value, uint16_t mode) {
  if (mode & kFlush) value = Flushed(value);
  if (mode & kSaturate) return value > T{0} ? (value < T{1} ? value : T{1}) : T{0};
  return Canonical(value);
}

// The operations under any rounding mode; rounded.cc.
template <class T>
[[nodiscard]] T AddRounded(T a, T b, Round round);
template <class T>
[[nodiscard]] T MulRounded(T a, T b, Round round);
template <class T>
[[nodiscard]] T FmaRounded(T a, T b, T c, Round round);
template <class T>
[[nodiscard]] T DivRounded(T a, T b, Round round);
template <class T>
[[nodiscard]] T SqrtRounded(T a, Round round);

// a + b with its last bit set when it is not exact ("round to odd"): rounding that once more to a
// narrower format gives what rounding the exact sum would.
[[nodiscard]] double AddToOdd(double a, double b);

}  // namespace gpuloom::softgpu
