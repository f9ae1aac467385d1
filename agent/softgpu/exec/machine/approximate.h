// SPDX-License-Identifier: Apache-2.0
// Exponentials, logarithms, sines, cosines and inverse roots in single precision, for several lanes at a time. The
// result is that of the C library's function in double precision, rounded to single.
//
// Each Near() has a relative error below 2^-45, and the library's is below 2^-52. If all numbers that near round to the
// same float, that is the result; otherwise, which happens once in 2^19 times, the library is called. Pure.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace gpuloom::softgpu {

inline constexpr double kBelow = 1 - 0x1p-44;
inline constexpr double kAbove = 1 + 0x1p-44;

// Adding it leaves a whole number in the low bits of the sum: the one nearest to what was added, up to 2^51.
inline constexpr double kWholes = 0x1.8p52;

// c[0] + c[1] x + c[2] x^2 + …
template <size_t kCount>
[[gnu::always_inline]] inline double Polynomial(double x, const double (&c)[kCount]) {
  double sum = c[kCount - 1];
  for (size_t i = kCount - 1; i > 0; --i) sum = sum * x + c[i - 1];
  return sum;
}

struct Exponential {
  [[gnu::always_inline]] static bool IsKnown(float) { return true; }
  static double Exact(double a) { return std::exp2(a); }
  [[gnu::always_inline]] static double Near(double a) {
    static constexpr double kSeries[] = {// ln(2)^i / i!
                                         1,
                                         0x1.62e42fefa39efp-1,
                                         0x1.ebfbdff82c58fp-3,
                                         0x1.c6b08d704a0cp-5,
                                         0x1.3b2ab6fba4e77p-7,
                                         0x1.5d87fe78a6731p-10,
                                         0x1.430912f86c787p-13,
                                         0x1.ffcbfc588b0c7p-17,
                                         0x1.62c0223a5c824p-20,
                                         0x1.b5253d395e7c4p-24,
                                         0x1.e4cf5158b8ecap-28,
                                         0x1.e8cac7351bb25p-32,
                                         0x1.c3bd650fc2986p-36};
    // Beyond these, a float is zero or infinite.
    const double inside = a < -200.0 ? -200.0 : a > 200.0 ? 200.0 : a;
    const double shifted = inside + kWholes;
    const double rest = inside - (shifted - kWholes);
    const double scale =
        std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) << 52) + (uint64_t{1023} << 52));
    return a != a ? a : Polynomial(rest, kSeries) * scale;
  }
};

struct Logarithm {
  [[gnu::always_inline]] static bool IsKnown(float) { return true; }
  static double Exact(double a) { return std::log2(a); }
  [[gnu::always_inline]] static double Near(double a) {
    static constexpr double kSeries[] = {
        // 2 / ln(2) / (2 i + 1)
        0x1.71547652b82fep+1, 0x1.ec709dc3a03fdp-1, 0x1.2776c50ef9bfep-1, 0x1.a61762a7aded9p-2,
        0x1.484b13d7c02a9p-2, 0x1.0c9a84994022dp-2, 0x1.c68f568d31760p-3, 0x1.89f3b1694cffep-3,
        0x1.5b9ac9b743f0dp-3, 0x1.3703c1f4d0ffep-3};
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    // a = 2^exponent * fraction, which lies around 1.
    constexpr uint64_t kRootOfHalf = 0x3fe6a09e667f3bcd;
    const uint64_t bits = std::bit_cast<uint64_t>(a);
    const uint64_t from_root = bits - kRootOfHalf + (uint64_t{1024} << 52);
    const double exponent =
        std::bit_cast<double>((from_root >> 52) | 0x4330000000000000u) - (0x1p52 + 1024);
    const double fraction =
        std::bit_cast<double>(bits - (from_root & 0xfff0000000000000u) + (uint64_t{1024} << 52));
    const double s = (fraction - 1) / (fraction + 1);
    const double result = exponent + s * Polynomial(s * s, kSeries);
    const double special = a == 0 ? -kInfinity : a == kInfinity ? kInfinity : std::nan("");
    return a > 0 && a < kInfinity ? result : special;
  }
};

// Starts from single precision; one step of Newton's method squares the error.
struct InverseRoot {
  [[gnu::always_inline]] static bool IsKnown(float a) {
    return a > 0 && a <= std::numeric_limits<float>::max();
  }
  static double Exact(double a) { return 1.0 / std::sqrt(a); }
  [[gnu::always_inline]] static double Near(double a) {
    const auto start = static_cast<double>(1.0f / std::sqrt(static_cast<float>(a)));
    return start * (1.5 - 0.5 * a * start * start);
  }
};

// The angle minus the nearest multiple of pi / 2, and the number of that multiple.
struct Quadrant {
  double rest;
  uint64_t number;
};

[[gnu::always_inline]] inline Quadrant QuadrantOf(double a) {
  const double shifted = a * 0x1.45f306dc9c883p-1 + kWholes;
  const double number = shifted - kWholes;
  // pi / 2 in parts of 33 bits: their products with numbers below 2^20 are exact.
  const double rest =
      ((a - number * 0x1.921fb544p0) - number * 0x1.0b4611a6p-34) - number * 0x1.3198a2e037073p-69;
  return {rest, std::bit_cast<uint64_t>(shifted)};
}

[[gnu::always_inline]] inline double SineOfQuadrant(double r, uint64_t number) {
  static constexpr double kSine[] = {1,
                                     -0x1.5555555555555p-3,
                                     0x1.1111111111111p-7,
                                     -0x1.a01a01a01a01ap-13,
                                     0x1.71de3a556c734p-19,
                                     -0x1.ae64567f544e4p-26,
                                     0x1.6124613a86d09p-33,
                                     -0x1.ae7f3e733b81fp-41};
  static constexpr double kCosine[] = {1,
                                       -0x1p-1,
                                       0x1.5555555555555p-5,
                                       -0x1.6c16c16c16c17p-10,
                                       0x1.a01a01a01a01ap-16,
                                       -0x1.27e4fb7789f5cp-22,
                                       0x1.1eed8eff8d898p-29,
                                       -0x1.93974a8c07c9dp-37,
                                       0x1.ae7f3e733b81fp-45};
  const double square = r * r;
  const double sine = r * Polynomial(square, kSine);
  const double cosine = Polynomial(square, kCosine);
  const double result = (number & 1) != 0 ? cosine : sine;
  return (number & 2) != 0 ? -result : result;
}

struct Sine {
  // Excludes infinities and not-a-number.
  [[gnu::always_inline]] static bool IsKnown(float a) { return std::fabs(a) <= 0x1p19f; }
  static double Exact(double a) { return std::sin(a); }
  [[gnu::always_inline]] static double Near(double a) {
    const Quadrant quadrant = QuadrantOf(a);
    return SineOfQuadrant(quadrant.rest, quadrant.number);
  }
};

struct Cosine {
  [[gnu::always_inline]] static bool IsKnown(float a) { return Sine::IsKnown(a); }
  static double Exact(double a) { return std::cos(a); }
  [[gnu::always_inline]] static double Near(double a) {
    const Quadrant quadrant = QuadrantOf(a);
    return SineOfQuadrant(quadrant.rest, quadrant.number + 1);
  }
};

}  // namespace gpuloom::softgpu
